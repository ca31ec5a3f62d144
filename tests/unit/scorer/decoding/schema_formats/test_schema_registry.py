"""Look-ups in a schema registry: a failure is attributed to its id while the registry answers other requests."""

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

SCHEMA = Schema("avro", "{}")


def id_of(number: int) -> SchemaId:
    return SchemaId("id", number)


class Stub:
    """A client whose errors a test sets: `answers` by id, and `down` for all requests and the probe."""

    def __init__(self, answers: dict[int, LookUpFailed] | None = None) -> None:
        self.answers = answers or {}
        self.down: LookUpFailed | None = None
        self.requested: Counter[int] = Counter()
        self.probes = 0
        self.gate: Callable[[], object] = lambda: None

    def schema(self, schema_id: SchemaId) -> Schema:
        self.requested[int(schema_id.value)] += 1
        self.gate()
        if self.down is not None:
            raise self.down
        if (error := self.answers.get(int(schema_id.value))) is not None:
            raise error
        return SCHEMA

    def probe(self) -> None:
        self.probes += 1
        if self.down is not None:
            raise self.down


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def registry(stub: Stub, clock: Clock | None = None) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistrySettings(url="http://me:secret@registry:8081"), stub, clock or Clock())


def error_of(schemas: SchemaRegistry, number: int) -> str:
    with pytest.raises(Poison) as raised:
        schemas.schema(id_of(number), "avro")
    assert raised.value.reason == "unknown-schema"
    return str(raised.value)


def look_up_all(schemas: SchemaRegistry, numbers: Iterable[int], events: int = 1) -> None:
    """Look up these ids of a batch with `events` events of each id, and repeat the call while look-ups are pending."""
    requested = dict.fromkeys(map(id_of, numbers), events)
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
    assert schemas.schema(id_of(1), "avro") == SCHEMA
    error_of(schemas, 7)
    assert stub.requested[7] == 1


def test_an_id_that_fails_is_looked_up_again_before_it_is_a_dead_letter() -> None:
    for failure in (LookUpFailed("oops", 500), LookUpFailed("timed out")):
        stub, clock = Stub({7: failure}), Clock()
        schemas = registry(stub, clock)
        for _ in range(ATTEMPTS - 1):
            with pytest.raises(LookUpsPending):
                schemas.look_up({id_of(7): 1})
            clock.now += 1.0
        assert error_of(schemas, 7) == f"the schema registry failed {ATTEMPTS} times for schema 7: {failure}"
        assert stub.requested[7] == ATTEMPTS
        clock.now += FAILED_SECONDS
        del stub.answers[7]
        assert schemas.schema(id_of(7), "avro") == SCHEMA


def test_an_id_that_fails_once_rejects_no_event() -> None:
    stub, clock = Stub({7: LookUpFailed("oops", 503)}), Clock()
    schemas = registry(stub, clock)
    with pytest.raises(LookUpsPending):
        schemas.look_up({id_of(7): 1})
    del stub.answers[7]
    clock.now += 1.0
    assert schemas.schema(id_of(7), "avro") == SCHEMA


@pytest.mark.parametrize("status", [None, 404, 500, 503])
def test_a_registry_without_answers_is_unavailable(status: int | None) -> None:
    stub = Stub()
    stub.down = LookUpFailed("connection refused", status)
    schemas = registry(stub)
    for _ in range(2):
        with pytest.raises(DependencyUnavailable) as raised:
            schemas.schema(id_of(7), "avro")
        assert raised.value.dependency == SCHEMA_REGISTRY
        assert "secret" not in str(raised.value)
    stub.down = None
    assert schemas.schema(id_of(7), "avro") == SCHEMA


def test_a_registry_that_rejects_all_requests_ends_the_service_only_at_the_start() -> None:
    stub = Stub()
    stub.down = LookUpFailed("Unauthorized", 401)
    schemas = registry(stub)
    with pytest.raises(Fatal, match=r"schema registry http://registry:8081: Unauthorized") as raised:
        schemas.schema(id_of(7), "avro")
    assert (type(raised.value), raised.value.hint, raised.value.exit_code) == (Fatal, "check schema_registry.extra", 3)
    stub.down = None
    assert schemas.schema(id_of(7), "avro") == SCHEMA
    stub.down = LookUpFailed("Unauthorized", 401)
    with pytest.raises(DependencyUnavailable):
        schemas.schema(id_of(8), "avro")


def test_unknown_ids_are_requested_once_each_with_one_probe() -> None:
    stub, clock = Stub({number: LookUpFailed("none", 404) for number in range(1, 41)}), Clock()
    schemas = registry(stub, clock)
    look_up_all(schemas, range(1, 81), events=2)
    look_up_all(schemas, range(1, 81), events=2)
    assert stub.requested == Counter(range(1, 81))
    assert stub.probes == 1
    assert error_of(schemas, 2) == "the schema registry does not know schema 2: none"
    assert schemas.schema(id_of(70), "avro") == SCHEMA
    clock.now += UNKNOWN_SECONDS
    del stub.answers[2]  # registered late
    assert schemas.schema(id_of(2), "avro") == SCHEMA


def flood(numbers: Iterable[int]) -> tuple[Stub, Clock, SchemaRegistry]:
    """Return a registry that does not know these ids, after its cache has spent the budget of failed look-ups on them."""
    stub, clock = Stub({number: LookUpFailed("none", 404) for number in numbers}), Clock()
    schemas = registry(stub, clock)
    assert schemas.schema(id_of(5_000), "avro") == SCHEMA
    look_up_all(schemas, stub.answers)
    return stub, clock, schemas


def test_a_flood_of_unknown_ids_costs_a_bounded_number_of_requests_and_is_requested_again_later() -> None:
    stub, clock, schemas = flood(range(1, 3_001))
    look_up_all(schemas, range(3_001, 3_201))
    assert stub.requested.total() == 1 + SINGLE_BUDGET
    assert stub.probes <= 2
    assert "schema 3050 was not looked up, because 8 look-ups of other ids failed within 10 s" in error_of(schemas, 3_050)
    assert schemas.schema(id_of(5_000), "avro") == SCHEMA
    clock.now += UNKNOWN_SECONDS
    assert schemas.schema(id_of(3_050), "avro") == SCHEMA


def test_ids_with_several_events_of_a_batch_have_a_larger_budget() -> None:
    stub, _, schemas = flood(range(1, 3_001))
    look_up_all(schemas, range(3_001, 3_101), events=2)
    assert all(stub.requested[number] == 1 for number in range(3_001, 3_101))
    stub.answers |= dict.fromkeys(range(4_001, 4_201), LookUpFailed("none", 404))
    look_up_all(schemas, range(4_001, 4_201), events=2)
    assert sum(stub.requested[number] for number in range(4_001, 4_201)) == LOOK_UP_BUDGET - SINGLE_BUDGET + 1


def test_the_id_with_the_most_events_of_a_batch_is_looked_up_during_a_flood() -> None:
    stub, _, schemas = flood(range(1, 3_001))
    look_up_all(schemas, range(1_001, 2_001), events=2)
    assert stub.requested.total() == 1 + LOOK_UP_BUDGET + 1
    schemas.look_up({id_of(3_001): 2, id_of(3_002): 2, id_of(3_003): 3})
    assert [stub.requested[number] for number in (3_001, 3_002, 3_003)] == [0, 0, 1]
    assert schemas.schema(id_of(3_003), "avro") == SCHEMA


def test_an_id_that_repeats_is_looked_up_during_a_flood_before_ids_that_occur_first() -> None:
    stub, clock, schemas = flood(range(1, 3_001))
    error_of(schemas, 3_001)
    clock.now += SKIPPED_SECONDS
    schemas.look_up({id_of(3_002): 1, id_of(3_001): 1, id_of(3_003): 1})
    assert [stub.requested[number] for number in (3_001, 3_002, 3_003)] == [1, 0, 0]
    assert schemas.schema(id_of(3_001), "avro") == SCHEMA


def test_a_skipped_id_is_looked_up_at_once_when_a_batch_has_more_of_its_events() -> None:
    _, _, schemas = flood(range(1, 3_001))
    error_of(schemas, 3_001)
    schemas.look_up({id_of(3_001): 1})
    error_of(schemas, 3_001)
    schemas.look_up({id_of(3_001): 2})
    assert schemas.schema(id_of(3_001), "avro") == SCHEMA


def test_a_single_event_with_an_unknown_id_is_looked_up_some_time_after_the_last_failure() -> None:
    stub, clock, schemas = flood(range(1, 3_001))
    clock.now += 2 * EXCEPTION_SECONDS
    assert schemas.schema(id_of(3_001), "avro") == SCHEMA
    clock.now += 2 * SKIPPED_SECONDS
    stub.answers[4_001] = LookUpFailed("none", 404)
    assert error_of(schemas, 4_001) == "the schema registry does not know schema 4001: none"
    for number in (3_002, 1_001):  # the next exception is due EXCEPTION_SECONDS after this failure, also for a skipped id
        error_of(schemas, number)
        assert stub.requested[number] == 0


def test_failures_that_have_become_old_count_for_no_flood() -> None:
    stub, clock = Stub({number: LookUpFailed("none", 404) for number in range(1, 3_001)}), Clock()
    schemas = registry(stub, clock)
    for first in range(1, 1_001, 40):
        look_up_all(schemas, range(first, first + 40), events=2)
        clock.now += UNKNOWN_SECONDS
    assert stub.requested.total() == 1_000


def test_a_caller_waits_at_most_for_a_slice_and_continues_where_it_stopped() -> None:
    stub, opened = Stub(), threading.Event()
    stub.gate = opened.wait
    schemas = registry(stub)
    requested = dict.fromkeys(map(id_of, range(1, 21)), 1)
    for _ in range(2):
        with pytest.raises(LookUpsPending):
            schemas.look_up(requested)
        assert sum(stub.requested.values()) == LOOK_UPS
    opened.set()
    schemas.look_up(requested)
    assert stub.requested == Counter(range(1, 21))


def test_an_invalid_id_is_not_requested() -> None:
    stub = Stub()
    assert error_of(registry(stub), 2**31) == "schema 2147483648 cannot exist: ids are 1 to 2147483647"
    assert not stub.requested


def test_an_id_of_zero_names_apicurios_long_ids() -> None:
    stub = Stub()
    assert "schema 0 cannot exist: ids are 1 to 2147483647; Apicurio's serialisers write ids of 8 bytes" in error_of(
        registry(stub), 0
    )
    assert not stub.requested


def test_a_schema_of_another_format_is_named() -> None:
    schemas = registry(Stub())
    with pytest.raises(Poison, match=r"schema 1 is a schema in avro, but input\.format is protobuf"):
        schemas.schema(id_of(1), "protobuf")
