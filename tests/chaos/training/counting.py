"""What a round has left behind, counted from the registry, the broker and the process table alone."""

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


def faults(ground: Ground, told: dict[str, Any]) -> list[str]:
    """What is not as it must be after a run that told this; nothing where all is."""
    store = store_of(ground)
    versions = [version for version in tags.versions(store.tags()) if version != "1.0.0" and "dataset" not in version]
    moves = [move for move in channel.history(store, "prod") if move.reason == f"run {told['run']}"]
    found = [] if versions == [told["version"]] else [f"versions {versions}, told {told['version']}"]
    if store.resolve(told["version"]).digest != told["digest"]:
        found.append(f"{told['version']} is {store.resolve(told['version']).digest}, told {told['digest']}")
    if [move.to_digest for move in moves] != [told["digest"]] or channel.resolve(store, "prod").digest != told["digest"]:
        found.append(f"moves {[(move.revision, move.to_version) for move in moves]}")
    found += _vouched(ground, store, told["digest"])
    found += _uncommitted(ground)
    found += [f"process {name} is left" for name in strays(ground.folder)]
    return found


def store_of(ground: Ground) -> Store:
    source = ground.source.replace("oci:./", f"oci:{ground.folder}/")
    return open_store(reference.parse(source), options=StoreOptions(plain_http=True))


def _vouched(ground: Ground, store: Store, digest: str) -> list[str]:
    """One signature, and one attestation of each type, all by the one key."""
    key, now = keys.read_public(ground.folder / "training.pub"), datetime.now(UTC)
    trusted = [TrustedKey("training", key, None)]
    attested = Counter(one.type for one in attestation.list_attestations(store, digest, trusted, now) if one.verified)
    statements = [bundle.parse_statement(bundle.parse(one.data).payload) for one in version_signatures.collect(store, digest)]
    signatures = sum(said.predicate_type == bundle.SIGNED for said in statements)
    found = [] if attested == dict.fromkeys(TYPES, 1) else [f"attestations {dict(attested)}"]
    return found if signatures == 1 else [*found, f"{signatures} signatures"]


def _uncommitted(ground: Ground) -> list[str]:
    """The group of the trigger stands at the end of the labels."""
    reader = TopicReader(KafkaSettings(bootstrap_servers=ground.servers), "count")
    spans = reader.spans(reader.partitions([ground.labels_topic]))
    ends = {partition: bounds.high for partition, bounds in spans.items()}
    committed = reader.committed(f"{ground.name}.training", ends)
    return [] if committed == ends else [f"committed {committed}, the ends are {ends}"]


def strays(folder: Path) -> list[str]:
    """Processes that still work in the folder."""
    found = []
    for process in psutil.process_iter(["pid", "cwd", "status", "name"]):
        cwd = process.info["cwd"]
        if cwd and Path(cwd).is_relative_to(folder) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{process.info['pid']} {process.info['name']}")
    return found
