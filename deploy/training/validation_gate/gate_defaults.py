"""The default metric and margin of the validation gate, and the metrics that each kind of target has. Pure."""

from collections.abc import Mapping

from publisher.errors import USAGE, Fatal
from training.settings import GateSection
from training.snapshot.target import Target, TargetKind
from training.validation_gate.metrics import default_metric

METRICS: Mapping[TargetKind, tuple[str, ...]] = {
    "binary": ("auc", "pr_auc", "log_loss", "accuracy"),
    "classes": ("log_loss", "macro_f1", "accuracy"),
    "regression": ("rmse", "mae", "quantile_loss", "interval_score"),
}
"""The values of `gate.metric` by the kind of the target. The settings define `quantile_loss` and `interval_score`."""
MARGINS: Mapping[TargetKind, float] = {"binary": 0.002, "classes": 0.002, "regression": 0.01}


def complete(gate: GateSection, target: Target) -> GateSection:
    """Return the settings with a metric and a margin: the configured ones, else the defaults of the target.

    Raises Fatal (exit code 2) if the target does not have the configured metric.
    """
    metric = gate.metric or default_metric(target)
    if metric not in METRICS[target.kind]:
        kind = {"binary": "two classes", "classes": f"{len(target.classes)} classes", "regression": "a regression"}[target.kind]
        message = f"gate.metric is {metric!r}, but the labels are {'numbers' if target.kind == 'regression' else kind}"
        raise Fatal(message, f"for {kind} it is one of {', '.join(METRICS[target.kind])}", USAGE)
    return gate.model_copy(update={"metric": metric, "margin": gate.margin or MARGINS[target.kind]})
