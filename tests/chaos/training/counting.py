"""Count the results of a round, from the registry, the broker and the process table alone."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from model_registry.channels import channel
from model_registry.oci import reference, tags
from model_registry.signing import attestation, bundle, keys
from model_registry.signing import signatures as version_signatures
from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store, StoreOptions
from model_registry.stores.open import open_store
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.reader import TopicReader
from tests.chaos.training.ground import Ground

TYPES = {PROVENANCE, EVALUATION, COMPARISON}


def faults(ground: Ground, report: dict[str, Any]) -> list[str]:
    """Return the problems after a run with this report; empty if there are none."""
    store = store_of(ground)
    versions = [version for version in tags.versions(store.tags()) if version != "1.0.0" and "dataset" not in version]
    moves = [move for move in channel.history(store, "prod") if move.reason == f"run {report['run']}"]
    problems = [] if versions == [report["version"]] else [f"versions {versions}, reported {report['version']}"]
    if store.resolve(report["version"]).digest != report["digest"]:
        problems.append(f"{report['version']} is {store.resolve(report['version']).digest}, reported {report['digest']}")
    if [move.to_digest for move in moves] != [report["digest"]] or channel.resolve(store, "prod").digest != report["digest"]:
        problems.append(f"moves {[(move.revision, move.to_version) for move in moves]}")
    problems += _vouched(ground, store, report["digest"])
    problems += _uncommitted(ground)
    problems += [f"process {name} still runs" for name in strays(ground.folder)]
    return problems


def store_of(ground: Ground) -> Store:
    source = ground.source.replace("oci:./", f"oci:{ground.folder}/")
    return open_store(reference.parse(source), options=StoreOptions(plain_http=True))


def _vouched(ground: Ground, store: Store, digest: str) -> list[str]:
    """Check that there is one signature and one attestation of each type, all by the same key."""
    key, now = keys.read_public(ground.folder / "training.pub"), datetime.now(UTC)
    trusted = [TrustedKey("training", key, None)]
    attested = Counter(entry.type for entry in attestation.list_attestations(store, digest, trusted, now) if entry.verified)
    statements = [
        bundle.parse_statement(bundle.parse(entry.data).payload) for entry in version_signatures.collect(store, digest)
    ]
    signatures = sum(statement.predicate_type == bundle.SIGNED for statement in statements)
    problems = [] if attested == dict.fromkeys(TYPES, 1) else [f"attestations {dict(attested)}"]
    return problems if signatures == 1 else [*problems, f"{signatures} signatures"]


def _uncommitted(ground: Ground) -> list[str]:
    """Check that the group of the trigger has committed the end of the labels."""
    reader = TopicReader(KafkaSettings(bootstrap_servers=ground.servers), "count")
    spans = reader.spans(reader.partitions([ground.labels_topic]))
    ends = {partition: bounds.high for partition, bounds in spans.items()}
    committed = reader.committed(f"{ground.name}.training", ends)
    return [] if committed == ends else [f"committed {committed}, the ends are {ends}"]


def strays(folder: Path) -> list[str]:
    """Return the processes whose working directory is in the folder."""
    names = []
    for process in psutil.process_iter(["pid", "cwd", "status", "name"]):
        cwd = process.info["cwd"]
        if cwd and Path(cwd).is_relative_to(folder) and process.info["status"] != psutil.STATUS_ZOMBIE:
            names.append(f"{process.info['pid']} {process.info['name']}")
    return names
