"""Look-ups in a schema registry: a failure is its id's as long as the registry answers other requests."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from publisher.errors import Fatal
from publisher.runtime.dependency_wait import SCHEMA_REGISTRY, DependencyUnavailable
from scorer.dead_letters.reasons import Poison
from scorer.decoding.schema_formats.schema import LookUpFailed, Schema, SchemaId
from scorer.decoding.schema_formats.schema_registry import (
    ATTEMPTS,
    EXCEPTION_SECONDS,
    FAILED_SECONDS,
    LOOK_UP_BUDGET,
    LOOK_UPS,
    SINGLE_BUDGET,
    SKIPPED_SECONDS,
    UNKNOWN_SECONDS,
    SchemaRegistry,
)
from scorer.decoding.types import LookUpsPending
from scorer.settings.input import SchemaRegistrySettings

GOOD = Schema("avro", "{}")


def of(number: int) -> SchemaId:
    return SchemaId("id", number)


class Stub:
    """A client whose answers a test sets: by id, an exception or a call; `down` is what the probe raises."""

    def __init__(self, answers: dict[int, LookUpFailed] | None = None) -> None:
        self.answers = answers or {}
        self.down: LookUpFailed | None = None
        self.asked: Counter[int] = Counter()
        self.probes = 0
        self.gate: Callable[[], object] = lambda: None

    def schema(self, schema_id: SchemaId) -> Schema:
        self.asked[int(schema_id.value)] += 1
        self.gate()
        if self.down is not None:
            raise self.down
        if (error := self.answers.get(int(schema_id.value))) is not None:
            raise error
        return GOOD

    def probe(self) -> None:
        self.probes += 1
        if self.down is not None:
            raise self.down


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def registry(stub: Stub, clock: Clock | None = None) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistrySettings(url="http://me:secret@registry:8081"), stub, clock or Clock())


def error_of(schemas: SchemaRegistry, number: int) -> str:
    with pytest.raises(Poison) as caught:
        schemas.schema(of(number), "avro")
    assert caught.value.reason == "unknown-schema"
    return str(caught.value)


def look_up_all(schemas: SchemaRegistry, numbers: Iterable[int], events: int = 1) -> None:
    """Look up these ids of a batch with so many events of each id, and repeat the call as long as look-ups are pending."""
    requested = dict.fromkeys(map(of, numbers), events)
    while True:
        try:
            schemas.look_up(requested)
        except LookUpsPending:
            continue
        return


@pytest.mark.parametrize("status", [401, 403])
def test_an_id_that_is_refused_is_a_dead_letter_while_others_are_answered(status: int) -> None:
    stub = Stub({7: LookUpFailed("Denied by rule 3", status)})
    schemas = registry(stub)
    assert error_of(schemas, 7) == "the schema registry refuses schema 7: Denied by rule 3"
    assert schemas.schema(of(1), "avro") == GOOD
    error_of(schemas, 7)
    assert stub.asked[7] == 1


def test_an_id_that_fails_is_looked_up_again_and_then_a_dead_letter() -> None:
    for failure in (LookUpFailed("oops", 500), LookUpFailed("timed out")):
        stub, clock = Stub({7: failure}), Clock()
        schemas = registry(stub, clock)
        for _ in range(ATTEMPTS - 1):
            with pytest.raises(LookUpsPending):
                schemas.look_up({of(7): 1})
            clock.now += 1.0
        assert error_of(schemas, 7) == f"the schema registry failed {ATTEMPTS} times for schema 7: {failure}"
        assert stub.asked[7] == ATTEMPTS
        clock.now += FAILED_SECONDS
        del stub.answers[7]
        assert schemas.schema(of(7), "avro") == GOOD


def test_an_id_that_fails_once_costs_no_event() -> None:
    stub, clock = Stub({7: LookUpFailed("oops", 503)}), Clock()
    schemas = registry(stub, clock)
    with pytest.raises(LookUpsPending):
        schemas.look_up({of(7): 1})
    del stub.answers[7]
    clock.now += 1.0
    assert schemas.schema(of(7), "avro") == GOOD


@pytest.mark.parametrize("status", [None, 404, 500, 503])
def test_a_registry_that_answers_nothing_is_away(status: int | None) -> None:
    stub = Stub()
    stub.down = LookUpFailed("nobody there", status)
    schemas = registry(stub)
    for _ in range(2):
        with pytest.raises(DependencyUnavailable) as caught:
            schemas.schema(of(7), "avro")
        assert caught.value.dependency == SCHEMA_REGISTRY
        assert "secret" not in str(caught.value)
    stub.down = None
    assert schemas.schema(of(7), "avro") == GOOD


def test_a_registry_that_rejects_everything_ends_the_service_only_at_the_start() -> None:
    stub = Stub()
    stub.down = LookUpFailed("Unauthorized", 401)
    schemas = registry(stub)
    with pytest.raises(Fatal, match=r"schema registry http://registry:8081: Unauthorized") as caught:
        schemas.schema(of(7), "avro")
    assert (type(caught.value), caught.value.hint, caught.value.exit_code) == (Fatal, "check schema_registry.extra", 3)
    stub.down = None
    assert schemas.schema(of(7), "avro") == GOOD
    stub.down = LookUpFailed("Unauthorized", 401)
    with pytest.raises(DependencyUnavailable):
        schemas.schema(of(8), "avro")


def test_unknown_ids_are_asked_for_once_each_with_one_probe() -> None:
    stub, clock = Stub({number: LookUpFailed("none", 404) for number in range(1, 41)}), Clock()
    schemas = registry(stub, clock)
    look_up_all(schemas, range(1, 81), events=2)
    look_up_all(schemas, range(1, 81), events=2)
    assert stub.asked == Counter(range(1, 81))
    assert stub.probes == 1
    assert error_of(schemas, 2) == "the schema registry does not know schema 2: none"
    assert schemas.schema(of(70), "avro") == GOOD
    clock.now += UNKNOWN_SECONDS
    del stub.answers[2]  # registered late
    assert schemas.schema(of(2), "avro") == GOOD


def flood(numbers: Iterable[int]) -> tuple[Stub, Clock, SchemaRegistry]:
    """Return a registry that does not know these ids, after its cache has spent the budget of failed look-ups on them."""
    stub, clock = Stub({number: LookUpFailed("none", 404) for number in numbers}), Clock()
    schemas = registry(stub, clock)
    assert schemas.schema(of(5_000), "avro") == GOOD
    look_up_all(schemas, stub.answers)
    return stub, clock, schemas


def test_a_flood_of_unknown_ids_costs_a_bounded_number_of_requests_and_is_asked_for_again_later() -> None:
    stub, clock, schemas = flood(range(1, 3_001))
    look_up_all(schemas, range(3_001, 3_201))
    assert stub.asked.total() == 1 + SINGLE_BUDGET
    assert stub.probes <= 2
    assert "schema 3050 was not looked up, because 8 look-ups of other ids failed within 10 s" in error_of(schemas, 3_050)
    assert schemas.schema(of(5_000), "avro") == GOOD
    clock.now += UNKNOWN_SECONDS
    assert schemas.schema(of(3_050), "avro") == GOOD


def test_ids_with_several_events_of_a_batch_have_a_larger_budget() -> None:
    stub, _, schemas = flood(range(1, 3_001))
    look_up_all(schemas, range(3_001, 3_101), events=2)
    assert all(stub.asked[number] == 1 for number in range(3_001, 3_101))
    stub.answers |= dict.fromkeys(range(4_001, 4_201), LookUpFailed("none", 404))
    look_up_all(schemas, range(4_001, 4_201), events=2)
    assert sum(stub.asked[number] for number in range(4_001, 4_201)) == LOOK_UP_BUDGET - SINGLE_BUDGET + 1


def test_the_id_with_the_most_events_of_a_batch_is_looked_up_during_a_flood() -> None:
    stub, _, schemas = flood(range(1, 3_001))
    look_up_all(schemas, range(1_001, 2_001), events=2)
    assert stub.asked.total() == 1 + LOOK_UP_BUDGET + 1
    schemas.look_up({of(3_001): 2, of(3_002): 2, of(3_003): 3})
    assert [stub.asked[number] for number in (3_001, 3_002, 3_003)] == [0, 0, 1]
    assert schemas.schema(of(3_003), "avro") == GOOD


def test_an_id_that_repeats_is_looked_up_during_a_flood_before_ids_that_occur_first() -> None:
    stub, clock, schemas = flood(range(1, 3_001))
    error_of(schemas, 3_001)
    clock.now += SKIPPED_SECONDS
    schemas.look_up({of(3_002): 1, of(3_001): 1, of(3_003): 1})
    assert [stub.asked[number] for number in (3_001, 3_002, 3_003)] == [1, 0, 0]
    assert schemas.schema(of(3_001), "avro") == GOOD


def test_a_skipped_id_is_looked_up_at_once_when_a_batch_has_more_of_its_events() -> None:
    _, _, schemas = flood(range(1, 3_001))
    error_of(schemas, 3_001)
    schemas.look_up({of(3_001): 1})
    error_of(schemas, 3_001)
    schemas.look_up({of(3_001): 2})
    assert schemas.schema(of(3_001), "avro") == GOOD


def test_a_single_event_with_an_unknown_id_is_looked_up_some_time_after_the_last_failure() -> None:
    stub, clock, schemas = flood(range(1, 3_001))
    clock.now += 2 * EXCEPTION_SECONDS
    assert schemas.schema(of(3_001), "avro") == GOOD
    clock.now += 2 * SKIPPED_SECONDS
    stub.answers[4_001] = LookUpFailed("none", 404)
    assert error_of(schemas, 4_001) == "the schema registry does not know schema 4001: none"
    for number in (3_002, 1_001):  # the next exception is due so long after this failure, also for an id that was skipped
        error_of(schemas, number)
        assert stub.asked[number] == 0


def test_failures_that_have_become_old_count_for_no_flood() -> None:
    stub, clock = Stub({number: LookUpFailed("none", 404) for number in range(1, 3_001)}), Clock()
    schemas = registry(stub, clock)
    for first in range(1, 1_001, 40):
        look_up_all(schemas, range(first, first + 40), events=2)
        clock.now += UNKNOWN_SECONDS
    assert stub.asked.total() == 1_000


def test_a_caller_does_not_wait_longer_than_a_slice_and_goes_on_where_it_was() -> None:
    stub, opened = Stub(), threading.Event()
    stub.gate = opened.wait
    schemas = registry(stub)
    requested = dict.fromkeys(map(of, range(1, 21)), 1)
    for _ in range(2):
        with pytest.raises(LookUpsPending):
            schemas.look_up(requested)
        assert sum(stub.asked.values()) == LOOK_UPS
    opened.set()
    schemas.look_up(requested)
    assert stub.asked == Counter(range(1, 21))


def test_an_id_that_no_registry_has_is_not_asked_for() -> None:
    stub = Stub()
    assert error_of(registry(stub), 2**31) == "schema 2147483648 cannot exist: ids are 1 to 2147483647"
    assert not stub.asked


def test_an_id_of_zero_names_apicurios_long_ids() -> None:
    stub = Stub()
    assert "schema 0 cannot exist: ids are 1 to 2147483647; Apicurio's serialisers write ids of 8 bytes" in error_of(
        registry(stub), 0
    )
    assert not stub.asked


def test_a_schema_of_another_format_is_named() -> None:
    schemas = registry(Stub())
    with pytest.raises(Poison, match=r"schema 1 is a schema in avro, but input\.format is protobuf"):
        schemas.schema(of(1), "protobuf")
