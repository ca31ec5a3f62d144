"""The count over regions for people."""

from rich.table import Table

from publisher.audit.regions import FAULTS, RegionsReport


def table(report: RegionsReport) -> Table:
    """Each count, and where the first of each fault were first written."""
    shown = Table("count", "", "first positions (region/topic/partition/offset)", title="audit over regions")
    for name, value in vars(report).items():
        if name not in ("examples", "by_region"):
            style = "bold red" if name in FAULTS and value else ""
            shown.add_row(name, f"{value:,}", "\n".join(report.examples.get(name, [])), style=style)
    for region, answered in sorted(report.by_region.items()):
        shown.add_row(f"answered in {region}", f"{answered:,}", "")
    return shown
