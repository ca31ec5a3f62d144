"""Print the list of a broker's jars with their sizes and hashes: `python3 deploy/requirements/lock_jars.py [VERSION]`.

The script resolves Apache Kafka with jgo from Maven Central (or from the mirror in the user's Maven settings). It prints one
line for each jar: SHA-256, size in bytes, `group:artifact:version`. The output without VERSION is committed as
`scorer/demo/broker_jars.txt`, and the output for another version as `tests/benchmarks/brokers/kafka-VERSION.txt`.
"""

import hashlib
import sys
from pathlib import Path

import jgo

EMBEDDED = "4.3.0"
KAFKA = "org.apache.kafka:kafka_2.13"
LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"  # as in Kafka's own release: without this jar Kafka writes no log


def main() -> None:
    """Resolve and download the jars, and print one line for each of them."""
    version = sys.argv[1] if len(sys.argv) > 1 else EMBEDDED
    found = [artifact for name in (f"{KAFKA}:{version}", LOGGING) for artifact in jgo.resolve(name)]
    artifacts = {str(artifact.component).rpartition(":")[0]: artifact for artifact in found}  # LOGGING's version wins
    for artifact in sorted(artifacts.values(), key=lambda artifact: str(artifact.component)):
        coordinates = artifact.component
        content = Path(artifact.resolve()).read_bytes()
        print(f"{hashlib.sha256(content).hexdigest()} {len(content)} {coordinates}")


if __name__ == "__main__":
    main()
