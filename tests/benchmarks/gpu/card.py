"""What the first NVIDIA card does meanwhile, as `nvidia-smi` tells it: how busy it is, and how much of its memory is in use."""

import contextlib
import subprocess
import threading
from typing import Any, Self

INTERVAL_MS = 200
FIELDS = "utilization.gpu,memory.used"
COMMAND = ("nvidia-smi", "--id=0", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", f"-lms={INTERVAL_MS}")


class Card:
    """Looks on until the block ends. Without `nvidia-smi` it sees nothing."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        try:
            self._process: subprocess.Popen[str] | None = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            self._process = None
            return self
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._reader.join()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # [N/A]: a card does not tell everything
                busy, used = map(float, line.split(","))
                self._samples.append((busy, used))

    def figures(self) -> dict[str, Any]:
        """`gpu_busy`, the share of the time from the first sample that is busy to the last one in which a kernel ran, and
        `gpu_mib`, the most memory that was in use beyond that of the first sample. Nothing where nothing was seen."""
        if not self._samples:
            return {}
        busy = [share for share, _ in self._samples]
        working = [index for index, share in enumerate(busy) if share] or [0]
        span = busy[working[0] : working[-1] + 1]
        used = [mib for _, mib in self._samples]
        return {"gpu_busy": round(sum(span) / len(span) / 100, 3), "gpu_mib": max(used) - used[0]}
