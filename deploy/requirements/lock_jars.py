"""Writes the list of the embedded broker's jars with their sizes and hashes: `python3 deploy/requirements/lock_jars.py`.

Resolves Apache Kafka with jgo from Maven Central (or the mirror of the user's Maven settings) and prints one line a jar:
SHA-256, size in bytes, `group:artifact:version`. The output is committed as `scorer/demo/broker_jars.txt`.
"""

import hashlib
from pathlib import Path

import jgo

KAFKA = "org.apache.kafka:kafka_2.13:4.3.0"
LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"  # Kafka's own release has it too: without it there is no log


def main() -> None:
    """Resolve, download and print."""
    artifacts = {str(artifact.component): artifact for name in (KAFKA, LOGGING) for artifact in jgo.resolve(name)}
    for coordinates, artifact in sorted(artifacts.items()):
        content = Path(artifact.resolve()).read_bytes()
        print(f"{hashlib.sha256(content).hexdigest()} {len(content)} {coordinates}")


if __name__ == "__main__":
    main()
