"""The settings of a shadow process: the scorer's settings with a different consumer group, output topic and address."""

from publisher.runtime import configuration
from publisher.runtime.configuration import Name
from scorer.settings import Settings

LATENCY_TARGET_MS = 1_000.0  # no consumer waits for a shadow's scores, and fewer transactions cost the brokers less


class ShadowWorkerSettings(Settings):
    """The settings of a shadow process, which also scores a share of a scorer's events. `shadowed` is the scorer's name.

    The process writes its status to the status topic of the scorer, and reads notifications of channel moves from this topic.
    It writes no dead letters, no records of version changes and no feature log.
    """

    shadowed: Name

    @classmethod
    def from_scorer(cls, settings: Settings) -> "ShadowWorkerSettings":
        """Derive the settings of a shadow process from the settings of its scorer.

        A shadow without committed offsets starts to read at the end of the input topics.

        Raises:
            SettingsError: A name or topic of the shadow is not valid, or is already in use.
        """
        values = settings.model_dump()
        return configuration.validated(
            cls,
            values
            | {
                "name": settings.shadow_group,
                "shadowed": settings.name,
                "input": values["input"] | {"start": "latest"},
                "output": values["output"] | {"topic": settings.shadow_topic},
                "batching": values["batching"] | {"latency_target_ms": LATENCY_TARGET_MS},
                "http": values["http"] | {"listen": settings.shadow.listen},
                "features": {},
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
