"""The views of the pages: moves, regions, histories and pagination."""

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from model_registry.oci.digests import short
from scorer.console import channel_view, views
from scorer.console.command_lines import CommandLines
from scorer.console.pagination import ROWS, page
from scorer.console.rendering import DASH, count, figure, milliseconds, options, percent, seconds, when
from scorer.console.state import KEPT_ACTIONS, Action, ConsoleState
from scorer.observability.status_record import PartitionStatus, ScorerStatus
from tests.unit.scorer.console import console_records
from tests.unit.scorer.console.console_records import NOW
from tests.unit.scorer.minimal import minimal


def view_and_headline(*statuses: ScorerStatus) -> tuple[channel_view.ChannelView, tuple[str, str]]:
    """Return the view and headline of a move to 2.0.0 (revision 2) with these scorers."""
    state = ConsoleState(
        registry=console_records.registry(console_records.move(1, "1.0.0"), console_records.move(2, "2.0.0", "1.0.0"))
    )
    for status in statuses:
        console_records.add(state, status)
    view = channel_view.channel_view(state, "prod", {}, NOW)
    return view, channel_view.headline(view)


def test_move_is_flipped_when_every_scorer_serves_it_and_refused_when_one_refuses() -> None:
    current, behind = console_records.status("m.a", "2.0.0", 2), console_records.status("m.b", "1.0.0", 1)
    view, headline = view_and_headline(current, console_records.status("m.b", "2.0.0", 2))
    assert view.counts["flipped"] == 2
    assert headline == ("flipped", "every scorer serves it: 2 scorers, 2 partitions")
    view, headline = view_and_headline(current, behind)
    assert headline == ("waiting", "1 of 2 scorers serve it")
    assert [(s.version, s.scorers, s.share) for s in view.served] == [("2.0.0", 1, 0.5), ("1.0.0", 1, 0.5)]
    refusing = console_records.status("m.b", "1.0.0", 1, refused={"2.0.0": "golden example 1"}, aspired_revision=2)
    view, headline = view_and_headline(current, refusing)
    assert view.refusals == [("m.b", "golden example 1")]
    assert headline == ("refused", "1 of 2 scorers refused it and continue with their previous version")


def test_partition_without_owner_keeps_a_move_waiting() -> None:
    state = ConsoleState(registry=console_records.registry(console_records.move(1, "1.0.0")))
    console_records.add(
        state, console_records.status("m.a", partitions=[PartitionStatus("in", 0, 0), PartitionStatus("in", 1, 0)])
    )
    assert channel_view.headline(channel_view.channel_view(state, "prod", {}, NOW))[0] == "flipped"
    console_records.add(state, console_records.status("m.a", partitions=[PartitionStatus("in", 0, 0)]))
    headline = channel_view.headline(channel_view.channel_view(state, "prod", {}, NOW))
    assert headline == ("waiting", "1 partition without a scorer")


def test_headline_without_channel_or_scorers() -> None:
    assert channel_view.headline(channel_view.channel_view(ConsoleState(), "prod", {}, NOW))[0] == "idle"
    assert view_and_headline()[1] == ("waiting", "no live scorer follows this channel")
    assert view_and_headline(console_records.status("m.a", tag="prod.us"))[0].rows.rows[0].outcome == ""


def test_thousands_of_scorers_are_one_page() -> None:
    state = ConsoleState(registry=console_records.registry(console_records.move(1, "1.0.0")))
    for number in range(1_500):
        console_records.add(state, console_records.status(f"m.{number:04}", partitions=[PartitionStatus("in", number, 2)]))
        state.swaps.add(console_records.swap(number, "1.0.0"))
    view = channel_view.channel_view(state, "prod", {"page": "30"}, NOW)
    assert (len(view.rows.rows), view.rows.pages, view.rows.total) == (ROWS, 30, 1_500)
    assert view.rows.rows[-1].scorer.status.scorer == "m.1499"
    assert len(view.squares) + view.squares_left_out == 1_500
    assert len(view.squares) == channel_view.SQUARES
    rows = channel_view.channel_view(state, "prod", {"q": "M.0042", "page": "9"}, NOW).rows
    assert ([row.scorer.status.scorer for row in rows.rows], rows.total, rows.everything) == (["m.0042"], 1, 1_500)
    assert channel_view.channel_view(state, "prod", {"show": "silent"}, NOW).rows.total == 0


@examples(max_examples=50)
@given(st.integers(0, 400), st.text(max_size=12) | st.integers(-5, 10**12).map(str))
def test_every_page_number_gives_a_page(total: int, number: str) -> None:
    view = page(list(range(total)), number)
    assert 1 <= view.number <= view.pages
    assert len(view.rows) <= ROWS
    assert bool(view.rows) == bool(total)


def test_regions_count_scorers_behind_and_channels_have_a_history() -> None:
    state = ConsoleState(
        registry=console_records.registry(console_records.move(1, "1.0.0"), console_records.move(2, "2.0.0", "1.0.0"))
    )
    console_records.add(state, console_records.status("a", "2.0.0", 2))
    console_records.add(state, console_records.status("b", "1.0.0", 1, region="us-east"))
    console_records.add(state, console_records.status("c", "1.0.0", 1, region="us-east", heartbeat_ms=int((NOW - 60) * 1_000)))
    rows = [(r.name, r.scorers, r.silent, r.behind, r.versions) for r in views.regions(state, NOW)]
    assert rows == [("eu-west", 1, 0, 0, [("2.0.0", 1)]), ("us-east", 1, 1, 1, [("1.0.0", 1)])]
    names, name, moves = views.history(state, "prod", {})  # the newest first
    assert (names, name, [m.revision for m in moves.rows] if moves else None) == (["prod"], "prod", [2, 1])
    assert views.history(state, "prod", {"channel": "nowhere"})[2] is None


def test_scores_are_compared_with_those_of_the_previous_version() -> None:
    state = ConsoleState(
        registry=console_records.registry(console_records.move(1, "1.0.0"), console_records.move(2, "2.0.0", "1.0.0"))
    )
    assert views.scores(state, "prod") == ([], None)
    assert views.scores_data(state)["lines"] == []
    for number in range(300):
        state.scores.add(console_records.score(number / 300, scored_ms=1_000))
        state.scores.add(console_records.score(number / 300, "2.0.0", scored_ms=2_000))
    rows, comparison = views.scores(state, "prod")
    assert [(row.version, row.tone) for row in rows] == [("2.0.0", 1), ("1.0.0", 0)]
    assert comparison is not None
    assert (comparison.before, comparison.now, comparison.verdict) == ("1.0.0", "2.0.0", "similar")
    assert views.DistributionShift("1", "2", 0.2).verdict == "shifted"
    assert views.DistributionShift("1", "2", 0.3).verdict == "different"
    assert "too few" in views.DistributionShift("1", "2", None).verdict


def test_dead_letters_are_filtered_by_reason_and_text() -> None:
    state = ConsoleState()
    for offset in range(3):
        state.letters.add(console_records.letter(offset, value=f'{{"n": {offset}}}'))
    state.letters.add(console_records.letter(3, "malformed"))
    assert views.letters(state, {})[1] == [("wrong-type", 3), ("malformed", 1)]
    assert views.letters(state, {"reason": "malformed"})[0].total == 1
    assert [letter.offset for letter in views.letters(state, {"q": '"N": 2'})[0].rows] == [2]


def test_action_replaces_its_earlier_state_and_error_keeps_its_first_time() -> None:
    state = ConsoleState()
    for number in range(KEPT_ACTIONS + 5):
        state.record_action(Action(number, NOW, "ann", "command"))
    state.record_action(Action(KEPT_ACTIONS + 4, NOW, "ann", "command", "done", "it is"))
    assert len(state.recent_actions) == KEPT_ACTIONS
    assert [(d.number, d.outcome) for d in state.recent_actions][:2] == [
        (KEPT_ACTIONS + 4, "done"),
        (KEPT_ACTIONS + 3, "doing"),
    ]
    for at in (5.0, 9.0):
        state.record_error("kafka", "no answer", "is it there?", at)
    assert state.source_errors["kafka"].since == 5.0
    state.clear_error("kafka")
    assert state.source_errors == {}


def test_command_lines_match_the_cli() -> None:
    lines = CommandLines(minimal(), "my scorer.yaml")
    promote = lines.promote("prod", "2.0.0", "it's better", 7)
    assert promote == ("""scorer promote 'my scorer.yaml' --to 2.0.0 --reason 'it'"'"'s better' --expect-revision 7 --wait""")
    assert "--set model.tag=canary " in lines.promote("canary", "2.0.0", "r", 7)
    assert "--to-revision 3" in lines.rollback("prod", 3, "back", 7)
    assert "--to-revision" not in lines.rollback("prod", None, "back", 7)
    assert lines.ask("approve", "it is good") == "scorer rollout approve 'my scorer.yaml' --reason 'it is good'"
    assert lines.replay(["malformed"], dry_run=True) == "scorer replay 'my scorer.yaml' --reason malformed --dry-run"


def test_figures_are_short() -> None:
    assert [count(n) for n in (0, 3.21, 12.0, 12345.6)] == ["0", "3.2", "12", "12,346"]
    assert [figure(n) for n in (None, float("nan"), 0.12345, 4321.0)] == [DASH, DASH, "0.123", "4,321"]
    times = None, 0.0, 4.21, 42, 600, 7_200, 864_000
    assert [seconds(n) for n in times] == [DASH, "0 s", "4.2 s", "42 s", "10 min", "2 h", "10 d"]
    assert [milliseconds(n) for n in (None, 3.21, 140, 2_100)] == [DASH, "3.2 ms", "140 ms", "2.1 s"]
    assert [percent(n) for n in (0.0, 0.043, 0.86)] == ["0 %", "4.3 %", "86 %"]
    assert (short("sha256:" + "ab" * 32), short("x")) == ("sha256:abababababab", "x")
    assert [when(at) for at in (0.0, 2.0**62)] == ["1970-01-01 00:00:00Z", DASH]
    assert options("a b --c d --e") == ["a b", "--c d", "--e"]
