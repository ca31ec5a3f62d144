"""A comparison as SVG: both confusion matrices, and each rule against its bound. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scorer.rollout.drawing import FAINT, FILL, GRID, INK, LINE, document, line, matrix, short, text

Document = Mapping[str, Any]
SIDE, NAMES, TOP, GAP = 250, 130, 130, 50  # pixels of the matrices
WIDTH, ROW, HEAD = 900, 26, 112  # of the rules
RULE_AT, VALUE_AT, BOUND_AT, PLOT_AT, PLOT = 46, 290, 380, 420, 400
MOST_SLICES = 20
NOTES = {
    "leak": "rows that the champion learned from",
    "coverage": "share of the held-out events with a label",
    "fresh": "blocks of time from the newest label to the newest event",
    "scored": "share of the rows that every version scores",
    "blocks": "blocks of time that rows are drawn again by",
    "chance": "the AUC, by its lower bound",
    "differs": "the largest difference of two scores",
    "width": "of the interval below; no bound where it leaves nothing open",
    "slices": "the largest loss of a slice that is no chance",
}
REFUSED = "#b42318"
VERDICTS = {"passed": ("Passed", FILL), "refused": ("Refused", REFUSED), "same": ("The same", FAINT)}
FIGURES = (("auc", "AUC"), ("accuracy", "accuracy"), ("brier", "Brier"))


def matrices(comparison: Document) -> str:
    """The confusion matrices: the champion's beside the challenger's; of a first model its own."""
    roles = [role for role in ("champion", "challenger") if comparison[role] is not None]
    width = len(roles) * (NAMES + SIDE) + GAP * len(roles)
    rows = comparison["rows"]
    lines = [
        text(20, 30, f"{rows['count']:,} held-out events, {rows['from'][:10]} to {rows['to'][:10]}", weight="bold", size=15)
    ]
    for at, role in enumerate(roles):
        version, left = comparison[role], NAMES + at * (NAMES + SIDE + GAP)
        told = ", ".join(f"{name} {version['metrics'][key]:.4f}" for key, name in FIGURES if key in version["metrics"])
        lines.append(text(left, TOP - 66, f"{role} {short(version['version'], 26)}", weight="bold"))
        lines.append(text(left, TOP - 48, told, size=11, ink=FAINT))
        counts = version["confusion_matrix"]
        lines += matrix(counts["labels"], counts["labels"], counts["counts"], left, TOP, SIDE)
    return document(width, TOP + SIDE + 30, lines)


def rules(comparison: Document) -> str:
    """A line a rule: whether it passed, its value and bound, and where there is one the interval of the difference, by a scale
    of its own around no difference. Slices follow, the worst first."""
    called, colour = VERDICTS[comparison["verdict"]]
    lines = [text(20, 30, f"{called}: run {short(comparison['run'], 30)}", weight="bold", size=15, ink=colour)]
    lines += [text(20, 50 + 16 * at, words, ink=INK) for at, words in enumerate(_wrapped(comparison["because"], 135)[:2])]
    lines += _columns(HEAD - 20, beside=comparison["champion"] is not None)
    top = HEAD
    for rule in comparison["rules"]:
        lines += _rule(rule, top)
        top += ROW
    slices = sorted(comparison["slices"], key=lambda one: one["difference"]["value"])[:MOST_SLICES]
    if slices:
        of = f" of {len(comparison['slices'])}" if len(slices) < len(comparison["slices"]) else ""
        lines.append(text(RULE_AT, top + 22, f"slices, the worst{of} first: {comparison['metric']}", weight="bold"))
        top += 40
    bound = next((rule["bound"] for rule in comparison["rules"] if rule["name"] == "slices"), None)
    for one in slices:
        name = f"{one['field']} {one['value']} ({one['rows']:,} rows)"
        lines += _plotted(name, one["difference"], bound, top)
        top += ROW
    return document(WIDTH, top + 20, lines)


def _columns(y: float, *, beside: bool) -> Iterator[str]:
    yield text(RULE_AT, y, "rule", size=11, ink=FAINT)
    yield text(VALUE_AT, y, "value", anchor="end", size=11, ink=FAINT)
    yield text(BOUND_AT, y, "bound", anchor="end", size=11, ink=FAINT)
    if beside:
        told = "challenger minus champion: 0 in the middle, the bound a red line"
        yield text(PLOT_AT + PLOT / 2, y, told, anchor="middle", size=11, ink=FAINT)


def _rule(rule: Document, top: float) -> Iterator[str]:
    mark, colour = ("\N{CHECK MARK}", FILL) if rule["passed"] else ("\N{MULTIPLICATION X}", REFUSED)
    if rule["value"] is None and rule["passed"]:
        mark, colour = "\N{EN DASH}", FAINT
    weight = "normal" if rule["passed"] else "bold"
    yield line(20, top + ROW / 2, WIDTH - 20, top + ROW / 2, GRID, opacity=0.6)
    yield text(24, top + 4, mark, weight="bold", size=14, ink=colour)
    yield text(RULE_AT, top + 4, short(rule["name"], 30), weight=weight)
    for x, number in ((VALUE_AT, rule["value"]), (BOUND_AT, rule["bound"])):
        yield text(x, top + 4, _number(number), anchor="end", weight=weight)
    if rule["name"] in NOTES:
        yield text(PLOT_AT, top + 4, NOTES[rule["name"]], size=11, ink=FAINT)
    if rule.get("difference") is not None:
        yield from _interval(rule["difference"], rule["bound"], top, REFUSED if not rule["passed"] else FILL)


def _plotted(name: str, difference: Document, bound: float | None, top: float) -> Iterator[str]:
    """A slice."""
    yield text(RULE_AT, top + 4, short(name, 34))
    yield text(VALUE_AT, top + 4, _number(difference["value"]), anchor="end")
    yield from _interval(difference, bound, top, LINE if difference["high"] < 0 else FILL)


def _interval(difference: Document, bound: float | None, top: float, colour: str) -> Iterator[str]:
    """A bar from low to high with a dot at the value."""
    low, value, high = (difference[key] for key in ("low", "value", "high"))
    reach = max(abs(low), abs(high), abs(bound or 0.0)) * 1.1 or 1.0
    middle = PLOT_AT + PLOT / 2
    x0, x1, x2 = (middle + PLOT / 2 * number / reach for number in (low, value, high))
    yield line(middle, top - 9, middle, top + 9, FAINT)
    if bound is not None:
        x = middle + PLOT / 2 * bound / reach
        yield line(x, top - 9, x, top + 9, REFUSED, width=2)
    yield line(x0, top, x2, top, colour, width=4, opacity=0.5)
    yield f'<circle cx="{x1:.1f}" cy="{top:.1f}" r="4.5" fill="{colour}"/>'


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.5f}" if 0 < abs(value) < 0.001 else f"{value:.4g}"


def _wrapped(said: str, width: int) -> Sequence[str]:
    """The text in lines of at most so many characters, broken at spaces."""
    lines = [""]
    for word in said.split():
        fits = len(lines[-1]) + len(word) < width
        lines[-1:] = [f"{lines[-1]} {word}".strip()] if fits or not lines[-1] else [lines[-1], word]
    return [short(words, width) for words in lines]
