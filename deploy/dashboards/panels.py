"""Build PromQL expressions, panels and dashboards with grafana-foundation-sdk.

Each expression contains the full name of its metric with its labels, as Prometheus reads it. The variables `$namespace` and
`$service` also match metrics without these labels, so that the dashboards work with any scrape configuration.
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
"""A PromQL expression, and the legend of its series."""

SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
WHERE = 'namespace=~"$namespace", service=~"$service"'
HALF = 12
THIRD = 8
SIXTH = 4
"""Widths of panels, in columns of Grafana's grid; the grid has 24 columns."""


def rate(metric: str) -> str:
    """Return an expression for the rate of a counter per second."""
    return f"rate({metric}{{{WHERE}}}[$__rate_interval])"


def changes(metric: str) -> str:
    """Return an expression for the increase of a counter within the rate interval, summed over all scorers or relays."""
    return f"sum(increase({now(metric)}[$__rate_interval]))"


def now(metric: str) -> str:
    """Return an expression for the current value of a metric, in the namespaces that the dashboard shows."""
    return f"{metric}{{{WHERE}}}"


def expiry(metric: str) -> str:
    """Return an expression for the seconds until the certificates expire, with one result for each setting.

    The label `setting` of a result is the setting that names the certificate's file. If several files have the same setting,
    the result is for the certificate that expires first.
    """
    return f"min by (setting) ({now(metric)} - time())"


def quantile(share: float, histogram: str) -> str:
    """Return an expression for a quantile of a histogram over all scorers; a `share` of 0.99 gives the 99th percentile."""
    return f"histogram_quantile({share}, sum by (le) ({rate(histogram + '_bucket')}))"


def mean(histogram: str) -> str:
    """Return an expression for the mean of a histogram's observations over all scorers."""
    return f"sum({rate(histogram + '_sum')}) / sum({rate(histogram + '_count')})"


def lines(
    title: str, description: str, unit: str, queries: Sequence[Query], *, width: int = HALF, stacked: bool = False
) -> timeseries.Panel:
    """Create a panel that draws the series of the queries as lines over time.

    `description` explains the panel. `unit` is Grafana's name of the unit. `stacked` draws the series on top of each other.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
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


def figure(title: str, description: str, unit: str, expression: str, *, width: int = SIXTH) -> stat.Panel:
    """Create a panel that shows the current value of an expression as one number."""
    panel = stat.Panel().title(title).description(description).unit(unit).span(width).height(4).datasource(SOURCE)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    return panel.with_target(_query("A", (expression, "")).instant())


def board(
    uid: str, title: str, namespace_metric: str, rows: Mapping[str, Sequence[timeseries.Panel | stat.Panel]]
) -> dashboard.Dashboard:
    """Create a dashboard. `rows` maps the title of each row to the panels of the row.

    The dashboard has three variables: the Prometheus data source, the namespace, and the service. A user chooses among the
    namespaces in which Prometheus has the metric `namespace_metric`, and among the services of these namespaces.
    """
    built = (
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
            .query(f"label_values({namespace_metric}, namespace)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .all_value(".*")
        )
        .with_variable(
            dashboard.QueryVariable("service")
            .label("Service")
            .datasource(SOURCE)
            .query(f'label_values({namespace_metric}{{namespace=~"$namespace"}}, service)')
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(True)
            .all_value(".*")
        )
    )
    for name, panels in rows.items():
        built = built.with_row(dashboard.Row(name))
        for panel in panels:
            built = built.with_panel(panel)
    return built


def _query(letter: str, query: Query) -> prometheus.Dataquery:
    expression, legend = query
    return prometheus.Dataquery().ref_id(letter).expr(expression).legend_format(legend).datasource(SOURCE)
