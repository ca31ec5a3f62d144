"""The expected time of a batch of B events: T(B) = a + b B seconds, fitted by least squares with exponential forgetting."""

from dataclasses import dataclass

FORGET = 0.98  # factor on the weights of earlier batches at each new batch: about the last fifty batches count


@dataclass(slots=True)
class LatencyModel:
    """A least-squares fit of T(B) = a + b B, the time of a batch of B events in seconds.

    The attributes are sums over the observed batches, in which earlier batches have smaller weights.
    """

    # The fields are the exponentially weighted sums of 1, B, T, B*B and B*T over the observed batches.

    weight: float = 0.0
    b: float = 0.0
    t: float = 0.0
    bb: float = 0.0
    bt: float = 0.0

    def observe(self, size: int, seconds: float) -> None:
        """Add the measurement of a batch: `size` events took `seconds`."""
        self.weight = self.weight * FORGET + 1
        self.b = self.b * FORGET + size
        self.t = self.t * FORGET + seconds
        self.bb = self.bb * FORGET + size * size
        self.bt = self.bt * FORGET + size * seconds

    def line(self) -> tuple[float, float]:
        """Return (a, b) of the fit in seconds. Neither is negative, and both are 0 before the first measurement.

        If all measured batches have the same size, a is 0.
        """
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

    def largest_batch(self, seconds: float, most: int) -> int:
        """Return the largest batch size, 1 to `most`, with an expected time of at most `seconds`.

        If the constant `a` exceeds half of `seconds`, the expected time may exceed `seconds`.
        """
        # If the constant cost a exceeds half of `seconds`, the size B is chosen so that b B <= `seconds` / 2, because smaller
        # batches do not reduce a. The expected time may then exceed `seconds`.
        a, b = self.line()
        room = max(seconds - a, seconds / 2)
        return max(1, int(room / b)) if b * most > room else most
