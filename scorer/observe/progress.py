"""What the owner thread shows of its work to the threads that tell about it: plain values, each replaced whole."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """`heartbeat` is in monotonic seconds; `lag` in records; `last_event_ms` is the time of the last answered event;
    `state` says what the scorer is at while it has not `joined`; `scoring` is set once the owner thread goes round; `paused`
    says why a partition is not read, where that is wrong."""

    heartbeat: float
    state: str = "starting"
    scoring: bool = False
    joined: bool = False
    events: int = 0
    batches: int = 0
    recoveries: int = 0
    paused: dict[tuple[str, int], str] = field(default_factory=dict)
    lag: dict[tuple[str, int], int] = field(default_factory=dict)
    last_event_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def alive(self) -> None:
        """The owner thread waits for something, and has not hung up."""
        self.heartbeat = time.monotonic()
