"""The load of the first NVIDIA card during a measurement, from `nvidia-smi`: its utilisation and its used memory."""

import contextlib
import subprocess
import threading
from typing import Any, Self

INTERVAL_MS = 200
FIELDS = "utilization.gpu,memory.used"
COMMAND = ("nvidia-smi", "--id=0", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", f"-lms={INTERVAL_MS}")


class Card:
    """Samples the card until the block ends. Without `nvidia-smi` there are no samples."""

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
            with contextlib.suppress(ValueError):  # [N/A]: a card does not report every figure
                busy, used = map(float, line.split(","))
                self._samples.append((busy, used))

    def figures(self) -> dict[str, Any]:
        """Return the figures, or an empty dict without samples.

        `gpu_busy` is the mean utilisation from the first busy sample to the last one, as a share; `gpu_mib` is the largest used
        memory above that of the first sample.
        """
        if not self._samples:
            return {}
        busy = [share for share, _ in self._samples]
        working = [index for index, share in enumerate(busy) if share] or [0]
        span = busy[working[0] : working[-1] + 1]
        used = [mib for _, mib in self._samples]
        return {"gpu_busy": round(sum(span) / len(span) / 100, 3), "gpu_mib": max(used) - used[0]}
