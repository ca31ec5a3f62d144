"""The cost of a batch: T(B) = a + b B seconds, fitted by least squares with exponential forgetting. Pure functions."""

from dataclasses import dataclass

FORGET = 0.98  # weight of the earlier batches at each new batch: about the last fifty count


@dataclass(slots=True)
class LatencyModel:
    """A fit of T(B) = a + b B, from exponentially weighted sums of (1, B, T, B*B, B*T)."""

    weight: float = 0.0
    b: float = 0.0
    t: float = 0.0
    bb: float = 0.0
    bt: float = 0.0

    def observe(self, size: int, seconds: float) -> None:
        """Add a batch of `size` events that took `seconds`."""
        self.weight = self.weight * FORGET + 1
        self.b = self.b * FORGET + size
        self.t = self.t * FORGET + seconds
        self.bb = self.bb * FORGET + size * size
        self.bt = self.bt * FORGET + size * seconds

    def line(self) -> tuple[float, float]:
        """Return (a, b) in seconds, neither negative. If all sizes are equal, the whole cost is attributed to b."""
        if not self.weight:
            return 0.0, 0.0
        mean_b = self.b / self.weight
        mean_t = self.t / self.weight
        variance = self.bb / self.weight - mean_b * mean_b
        if variance <= 1e-9 * max(mean_b * mean_b, 1.0):
            return 0.0, mean_t / mean_b if mean_b else 0.0
        slope = max((self.bt / self.weight - mean_b * mean_t) / variance, 0.0)
        intercept = mean_t - slope * mean_b
        return (intercept, slope) if intercept >= 0 else (0.0, mean_t / mean_b)

    def within(self, seconds: float, most: int) -> int:
        """Return the largest batch size, 1 to `most`, with an expected time of at most `seconds`.

        At most half of that time is attributed to the constant cost, because smaller batches do not reduce it.
        """
        a, b = self.line()
        room = max(seconds - a, seconds / 2)
        return max(1, int(room / b)) if b * most > room else most
