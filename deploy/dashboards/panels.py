"""The few kinds of panels and queries that the dashboards are made of.

Each expression names the metric with its labels in full: what stands here is what can be asked of Prometheus. `$namespace` also
takes metrics that have none, so the dashboards work outside Kubernetes too.
"""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import (
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

Query = tuple[str, str]
"""An expression, and the legend of its series."""

SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
WHERE = 'namespace=~"$namespace"'
HALF, THIRD, SIXTH = 12, 8, 4
"""Widths; a page has 24."""


def rate(metric: str) -> str:
    """How fast a counter grows, a second."""
    return f"rate({metric}{{{WHERE}}}[$__rate_interval])"


def changes(metric: str) -> str:
    """How often a counter has grown, over all scorers or relays."""
    return f"sum(increase({now(metric)}[$__rate_interval]))"


def now(metric: str) -> str:
    """A gauge."""
    return f"{metric}{{{WHERE}}}"


def quantile(share: float, histogram: str) -> str:
    """A quantile over all scorers."""
    return f"histogram_quantile({share}, sum by (le) ({rate(histogram + '_bucket')}))"


def mean(histogram: str) -> str:
    """What an observation was on average, over all scorers."""
    return f"sum({rate(histogram + '_sum')}) / sum({rate(histogram + '_count')})"


def lines(
    title: str, says: str, unit: str, queries: Sequence[Query], *, width: int = HALF, stacked: bool = False
) -> timeseries.Panel:
    """A panel over time. `says` is its explanation, `unit` Grafana's name of one."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(says)
        .unit(unit)
        .min(0)
        .span(width)
        .height(8)
        .datasource(SOURCE)
        .draw_style(GraphDrawStyle.LINE)
        .fill_opacity(40 if stacked else 8)
        .legend(
            common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        panel = panel.with_target(_query(letter, query).range())
    return panel


def figure(title: str, says: str, unit: str, expression: str, *, width: int = SIXTH) -> stat.Panel:
    """One number, as it is now."""
    panel = stat.Panel().title(title).description(says).unit(unit).span(width).height(4).datasource(SOURCE)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    return panel.with_target(_query("A", (expression, "")).instant())


def board(uid: str, title: str, asked: str, rows: Mapping[str, Sequence[timeseries.Panel | stat.Panel]]) -> dashboard.Dashboard:
    """Panels by row. Two choices: the Prometheus to ask, and the namespace, from the labels of metric `asked`."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags(["scorestream"])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("namespace")
            .label("Namespace")
            .datasource(SOURCE)
            .query(f"label_values({asked}, namespace)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .all_value(".*")
        )
    )
    for name, panels in rows.items():
        made = made.with_row(dashboard.Row(name))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def _query(letter: str, query: Query) -> prometheus.Dataquery:
    expression, legend = query
    return prometheus.Dataquery().ref_id(letter).expr(expression).legend_format(legend).datasource(SOURCE)
