"""Find the champion and the candidate of an analysis: by explicit names, or by the newest score records.

Depends on a topic reader and, for tags, on the registry. Decides nothing about the versions.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from model_registry.channels import channel
from model_registry.channels.roles import CANARY, CHAMPION
from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Partition, Spans
from publisher.kafka.reader import TopicReader
from scorer.models.registry_access import open_source
from scorer.rollout.canary_analysis.paired_metrics import Contest
from scorer.scores import formats
from scorer.scores.decode_record import ScoreRecord, decode_record
from scorer.settings import Settings

NEAR = 200  # newest offsets of each partition that are searched for versions
DIGEST = "sha256:"


class ContestVersion(NamedTuple):
    """The digest and the tag of a version. The attribute `version` is the tag; it is empty if only the digest is known."""

    digest: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.version}@{self.digest}" if self.version else self.digest


class Contestants(NamedTuple):
    """The champion and the candidate of an analysis."""

    champion: ContestVersion
    candidate: ContestVersion

    @property
    def contest(self) -> Contest:
        """The digests of both versions."""
        return Contest(self.champion.digest, self.candidate.digest)


def find_version(settings: Settings, wanted: str) -> ContestVersion:
    """Return the version with this tag or digest.

    Raises:
        RegistryError: If the registry has no such tag.
    """
    if wanted.startswith(DIGEST):
        return ContestVersion(wanted)
    resolved = channel.resolve(open_source(settings), wanted)
    return ContestVersion(resolved.digest, resolved.version)


def find_contestants(
    bus: TopicReader,
    settings: Settings,
    stretch: Spans,
    champion: ContestVersion | None = None,
    candidate: ContestVersion | None = None,
) -> Contestants | None:
    """Return the champion and the candidate of an analysis; None if one of them cannot be determined.

    A version that is not given is read from the newest records in the offset ranges `stretch`.

    Raises:
        Fatal: With code 2 if both are the same version.
    """
    # The champion is the version of the newest score with the role champion. The candidate is the newest other version among
    # the shadow answers, or else among the canary's scores.
    as_json = formats.as_json(settings)
    scores = _newest(bus, stretch, settings.output.topic, as_json) if champion is None or candidate is None else []
    shadow = _newest(bus, stretch, settings.shadow_topic, as_json) if candidate is None else []
    champion = champion or next((version for role, version in scores if role == CHAMPION), None)
    if champion is None:
        return None
    others = [version for _, version in shadow] + [version for role, version in scores if role == CANARY]
    candidate = candidate or next((version for version in others if version.digest != champion.digest), None)
    if candidate is None:
        return None
    if candidate.digest == champion.digest:
        raise Fatal(f"{champion} is both champion and candidate", "name two versions: --champion, --candidate", USAGE)
    return Contestants(champion, candidate)


def _newest(
    bus: TopicReader, stretch: Spans, topic: str, as_json: Callable[[bytes], bytes]
) -> list[tuple[str, ContestVersion]]:
    """Return (role, version) for each of the newest readable score records of a topic, the newest record first.

    The role is champion, canary or shadow.
    """
    tails: dict[Partition, tuple[int, int]] = {
        partition: (max(start, end - NEAR), end) for partition, (start, end) in stretch.items() if partition[0] == topic
    }
    records = sorted(_records(bus, tails, as_json), key=lambda record: -record.event_ms)
    return [(record.role, ContestVersion(record.digest, record.version)) for record in records]


def _records(bus: TopicReader, tails: Spans, as_json: Callable[[bytes], bytes]) -> Iterator[ScoreRecord]:
    for batch in bus.read(tails):
        for message in batch.messages:
            try:
                yield decode_record(as_json(message.value() or b"null"))
            except ValueError:
                continue
