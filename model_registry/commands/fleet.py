"""The verb `status`."""

import time
from typing import TYPE_CHECKING, Any

from model_registry.commands.options import Access, Json, Kafka, KafkaConfig, Repo, StatusTopic

if TYPE_CHECKING:
    from model_registry.rollout import ScorerRecord
    from model_registry.stores import Store


def status(
    access: Access,
    repo: Repo,
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    status_topic: StatusTopic = None,
    json: Json = False,
) -> None:
    """Show the channels, what they name and who moved them last; with --kafka also which scorers run what."""
    from model_registry.commands import output
    from model_registry.commands.announce import Audience

    store, target = access.open(repo)
    channels = _channels(store)
    value: dict[str, Any] = {"repository": store.repository, "channels": channels}
    columns = ["channel", "revision", "serves", "moved", "by", "reason"]
    keys = ["channel", "revision", "serves", "at", "by", "reason"]
    text = output.table(columns, [[c[key] for key in keys] for c in channels])
    topic = Audience(kafka, kafka_config, status_topic or f"{target.name}.status", None, access.timeout).connect()
    if topic is not None:
        topic.close()
        live = {record.scorer for record in topic.fleet.live(time.time())}
        scorers = [_scorer(record, live) for _, (record, _) in sorted(topic.fleet.last.items())]
        value["scorers"] = scorers
        keys = ["scorer", "state", "tag", "version", "revision", "partitions", "refused"]
        text += "\n\n" + output.table(keys, [[_cell(scorer[key]) for key in keys] for scorer in scorers])
    output.show(json, value, text)


def _channels(store: "Store") -> list[dict[str, Any]]:
    from model_registry.channels import channel, roles
    from model_registry.oci import tags

    rows: list[dict[str, Any]] = []
    there = store.tags()
    for name in tags.channels(there):
        if name not in there:
            continue
        found = channel.resolve(store, name)
        last = channel.history(store, name, after=found.revision - 1)[0]
        row = {"channel": name, "revision": found.revision, "version": found.version, "digest": found.digest}
        parts = [{"role": p.role, "version": p.version, "digest": p.digest, "weight": p.weight} for p in found.roles]
        row |= {"serves": roles.shown(found.roles) or found.version, "roles": parts}
        rows.append(row | {"at": f"{last.at:%Y-%m-%dT%H:%M:%SZ}", "by": last.actor, "reason": last.reason})
    return rows


def _scorer(record: "ScorerRecord", live: set[str]) -> dict[str, Any]:
    serves = record.champion
    return {
        "scorer": record.scorer,
        "state": "silent" if record.state == "running" and record.scorer not in live else record.state,
        "tag": record.tag,
        "version": serves.version if serves else None,
        "digest": serves.digest if serves else None,
        "revision": serves.revision if serves else None,
        "partitions": len(record.partitions),
        "refused": record.refused,
    }


def _cell(value: object) -> object:
    if isinstance(value, dict):
        return "; ".join(f"{version}: {reason}" for version, reason in value.items())
    return "-" if value is None else value
