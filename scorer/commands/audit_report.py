"""`scorer audit`: the plan of the count for one scorer's topics. It counts with publisher/audit/ledger.py; several regions with
publisher/audit/regions.py."""

from collections.abc import Sequence

from publisher.audit.regions_topics import Side
from publisher.audit.topics import Plan
from publisher.process.time_window import ALWAYS, TimeWindow
from scorer.scores import formats
from scorer.settings import Settings


def plan(settings: Settings, window: TimeWindow = ALWAYS) -> Plan:
    """Every topic that the settings name, and the group's committed offsets; inputs of the window only."""
    return Plan(
        settings.input.topics,
        [settings.output.topic],
        [settings.dead_letter.topic],
        [settings.swaps_topic],
        settings.name,
        *window,
        as_json=formats.as_json(settings),
    )


def sides(regions: Sequence[Settings]) -> list[Side]:
    """The same for one scorer in several regions."""
    return [Side(settings.region, settings.kafka, plan(settings)) for settings in regions]
