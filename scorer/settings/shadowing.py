"""The settings of a process that shadows scorers: theirs, but for a group and an output topic of its own."""

from publisher.runtime import configuration
from publisher.runtime.configuration import Name
from scorer.settings import Settings

TARGET_MS = 1_000.0  # nobody waits: few transactions, which brokers pay for


class Shadowing(Settings):
    """`shadowed` is the name of the scorers. It tells of itself on their status topic, where it also hears that the channel has
    moved. It writes no dead letters and no swap records: it answers nobody."""

    shadowed: Name

    @classmethod
    def of(cls, settings: Settings) -> "Shadowing":
        """The settings of the shadow of these scorers. One that has not begun yet begins with the events to come. Raises
        SettingsError where a name or topic of the shadow is none, or is used already."""
        theirs = settings.model_dump()
        return configuration.validated(
            cls,
            theirs
            | {
                "name": settings.shadow_group,
                "shadowed": settings.name,
                "input": theirs["input"] | {"start": "latest"},
                "output": theirs["output"] | {"topic": settings.shadow_topic},
                "batching": theirs["batching"] | {"latency_target_ms": TARGET_MS},
                "http": theirs["http"] | {"listen": settings.shadow.listen},
            },
        )

    @property
    def offsets_command(self) -> str:
        return f"{super().offsets_command} --shadow"

    @property
    def answer_topics(self) -> tuple[str, ...]:
        return (self.output.topic,)

    @property
    def status_topic(self) -> str:
        return f"{self.shadowed}.status"
