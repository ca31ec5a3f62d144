"""Writes the list of a broker's jars with their sizes and hashes: `python3 deploy/requirements/lock_jars.py [VERSION]`.

Resolves Apache Kafka with jgo from Maven Central (or the mirror of the user's Maven settings) and prints one line a jar:
SHA-256, size in bytes, `group:artifact:version`. The output without a version is committed as `scorer/demo/broker_jars.txt`,
that for another version as `tests/benchmarks/brokers/kafka-VERSION.txt`.
"""

import hashlib
import sys
from pathlib import Path

import jgo

EMBEDDED = "4.3.0"
KAFKA = "org.apache.kafka:kafka_2.13"
LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"  # Kafka's own release has it too: without it there is no log


def main() -> None:
    """Resolve, download and print."""
    version = sys.argv[1] if len(sys.argv) > 1 else EMBEDDED
    found = [artifact for name in (f"{KAFKA}:{version}", LOGGING) for artifact in jgo.resolve(name)]
    artifacts = {str(artifact.component).rpartition(":")[0]: artifact for artifact in found}  # one version: that for logging
    for artifact in sorted(artifacts.values(), key=lambda artifact: str(artifact.component)):
        coordinates = artifact.component
        content = Path(artifact.resolve()).read_bytes()
        print(f"{hashlib.sha256(content).hexdigest()} {len(content)} {coordinates}")


if __name__ == "__main__":
    main()
