"""Making a move known: the notice to the scorers, and following them until they have flipped or refused."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from model_registry.channels.history import Move
    from model_registry.rollout import Verdict
    from model_registry.status_topic import StatusTopic

NOT_IN_TIME, REFUSED = 1, 3  # exit codes


@dataclass(frozen=True, slots=True)
class Audience:
    """Where the scorers of a channel tell of themselves, and for how many seconds they are waited for (None: not at all).

    `timeout` is how long the broker may be silent, in seconds.
    """

    kafka: str | None
    kafka_config: Path | None
    topic: str
    wait_seconds: float | None
    timeout: float

    def connect(self) -> "StatusTopic | None":
        """Their status topic, read to its end; None where no broker was named. Raises RegistryError."""
        from model_registry import status_topic
        from model_registry.errors import BadReference

        if self.kafka is None and self.kafka_config is None:
            if self.wait_seconds is not None:
                raise BadReference("--wait without a broker", "--kafka HOST:PORT names the scorers' broker")
            return None
        client = status_topic.properties(self.kafka, self.kafka_config)
        topic = status_topic.StatusTopic(client, self.topic, self.timeout)
        try:
            topic.read()
        except BaseException:
            topic.close()
            raise
        return topic


def carry_out(json: bool, audience: Audience, repository: str, make: "Callable[[], Move]") -> None:
    """Make a move, tell the scorers and wait for them, and print it all. Ends with 1 (not in time) or 3 (refused)."""
    from model_registry.commands import output

    topic = audience.connect()  # before the move: an address that is wrong moves nothing
    try:
        made = make()
        if not json:
            output.show_text(output.move_line(made))
        began = time.monotonic()
        verdict = _tell(topic, audience, made, repository) if topic else None
    finally:
        if topic is not None:
            topic.close()
    value = output.move(made)
    if verdict is None:
        if json:
            output.show(json, value, "")
        return
    seconds = round(time.monotonic() - began, 3)
    summary = verdict.outcome if verdict.outcome != "waiting" else "timed out"
    output.show(json, value | {"rollout": {"outcome": summary, "seconds": seconds, **_rows(verdict)}}, _line(verdict, seconds))
    if verdict.outcome != "flipped":
        raise typer.Exit(REFUSED if verdict.outcome == "refused" or _refusals(verdict) else NOT_IN_TIME)


def _tell(topic: "StatusTopic", audience: Audience, made: "Move", repository: str) -> "Verdict | None":
    """The notice, then the wait. The move is made already: a notice that is lost costs the scorers one poll."""
    from model_registry.commands import output
    from model_registry.errors import Unreachable

    try:
        topic.notify(made, repository)
    except Unreachable as error:
        output.talk(f"warning: {error}; the scorers see the move at their next poll")
    if audience.wait_seconds is None:
        return None
    told: set[tuple[str, str]] = set()

    def changed(verdict: "Verdict") -> None:
        for standing in verdict.scorers:
            if (standing.scorer, standing.outcome) not in told and standing.outcome != "waiting":
                told.add((standing.scorer, standing.outcome))
                reason = f": {standing.reason}" if standing.reason else f", {standing.partitions} partitions"
                output.talk(f"{standing.scorer} has {standing.outcome}{reason}")

    return topic.follow(made, audience.wait_seconds, changed)


def _refusals(verdict: "Verdict") -> list[str]:
    return [f"{s.scorer}: {s.reason}" for s in verdict.scorers if s.outcome == "refused"]


def _rows(verdict: "Verdict") -> dict[str, Any]:
    missing = [{"topic": topic, "partition": number} for topic, number in verdict.missing]
    return {"scorers": [asdict(standing) for standing in verdict.scorers], "missing_partitions": missing}


def _line(verdict: "Verdict", seconds: float) -> str:
    from model_registry.commands import output

    scorers = len(verdict.scorers)
    if verdict.outcome == "flipped":
        partitions = sum(standing.partitions for standing in verdict.scorers)
        return f"flipped: {scorers} scorers, {partitions} partitions, after {seconds:.2f} s"
    if refusals := _refusals(verdict):
        return output.plain(f"refused after {seconds:.2f} s by {'; '.join(refusals)}")
    if not scorers:
        return f"timed out after {seconds:.0f} s: no live scorer follows this channel"
    late = [standing.scorer for standing in verdict.scorers if standing.outcome == "waiting"]
    orphans = [f"{topic}[{number}]" for topic, number in verdict.missing]
    return output.plain(f"timed out after {seconds:.0f} s, waiting for {', '.join(late + orphans)}")
