"""Export when the certificates in the configured PEM files expire, as a metric that an alert can use.

The files are read again when they change, because certificates are renewed while a process runs. The metric describes the
files only. Whether the process already uses a renewed file depends on the clients of the process.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from publisher.kafka import tls_files

FileState = tuple[int, int]
"""The modification time in nanoseconds and the size of a file."""


def expiry_timestamp(path: Path, *, is_bundle: bool) -> float:
    """Return when the certificates of a PEM file expire, in Unix seconds.

    Args:
        path: the file.
        is_bundle: True for a file of CA certificates: the result is the latest expiry. False for a certificate chain: the
            result is the earliest expiry.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file contains no certificate.
    """
    # While an authority is replaced, the file has the old and the new certificate.
    ends = [certificate.not_valid_after_utc.timestamp() for certificate in tls_files.certificates(path)]
    return max(ends) if is_bundle else min(ends)


class CertificateExpiry(Collector):
    """Exports `<prefix>_certificate_expiry_timestamp_seconds` with the label `setting` for each readable file.

    A file that cannot be read or parsed has no sample.

    Args:
        prefix: the prefix of the metric: `scorer` or `publisher`.
        files: the PEM files by the full name of their setting.
    """

    def __init__(self, prefix: str, files: Mapping[str, Path]) -> None:
        self._name = f"{prefix}_certificate_expiry_timestamp_seconds"
        self._files = dict(files)
        self._read: dict[str, tuple[FileState, float]] = {}

    def collect(self) -> Iterable[Metric]:
        """Yield the current values."""
        documentation = "Time at which the certificate of a configured PEM file expires."
        family = GaugeMetricFamily(self._name, documentation, labels=["setting"])
        for setting, path in self._files.items():
            with suppress(OSError, ValueError):
                family.add_metric([setting], self._expiry(setting, path))
        yield family

    def _expiry(self, setting: str, path: Path) -> float:
        status = path.stat()
        state = (status.st_mtime_ns, status.st_size)
        cached = self._read.get(setting)
        if cached is not None and cached[0] == state:
            return cached[1]
        expiry = expiry_timestamp(path, is_bundle=setting.endswith("ca_file"))
        self._read[setting] = state, expiry
        return expiry
