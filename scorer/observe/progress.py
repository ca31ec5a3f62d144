"""What the owner thread shows of its work to the threads that tell about it: plain values, each replaced whole."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """`heartbeat` is in monotonic seconds; `lag` in records; `last_event_ms` is the time of the last answered event;
    `away` says what is wrong with the servers that hold the model, while the partitions wait for them."""

    heartbeat: float
    joined: bool = False
    events: int = 0
    batches: int = 0
    recoveries: int = 0
    away: str | None = None
    lag: dict[tuple[str, int], int] = field(default_factory=dict)
    last_event_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def alive(self) -> None:
        """The owner thread waits for something, and has not hung up."""
        self.heartbeat = time.monotonic()
