"""What each component may do, as `deploy/rights.md` lists it: the least that works. `*` at the end makes a prefix."""

from confluent_kafka.admin import AclOperation, ResourceType

from tests.integration.security.broker import Right

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


def scorer(name: str) -> dict[str, Right]:
    """`scorer run`, `scorer check`."""
    return {
        "input": (TOPIC, f"{name}.events", READ),
        "output": (TOPIC, f"{name}.scores", WRITE),
        "dead letters": (TOPIC, f"{name}.dead", WRITE),
        "status": (TOPIC, f"{name}.status", WRITE),
        "notices": (TOPIC, f"{name}.status", READ),
        "swaps": (TOPIC, f"{name}.swaps", WRITE),
        "what was scored": (TOPIC, f"{name}.swaps", READ),
        "group": (GROUP, name, READ),
        "transactions": (TRANSACTIONAL_ID, f"{name}/scorer/*", WRITE),
    }


def shadow(name: str) -> dict[str, Right]:
    """`scorer run --shadow`."""
    return {
        "input": (TOPIC, f"{name}.events", READ),
        "output": (TOPIC, f"{name}.scores.shadow", WRITE),
        "status": (TOPIC, f"{name}.status", WRITE),
        "notices": (TOPIC, f"{name}.status", READ),
        "group": (GROUP, f"{name}.shadow", READ),
        "transactions": (TRANSACTIONAL_ID, f"{name}.shadow/scorer/*", WRITE),
    }


def auditor(name: str) -> dict[str, Right]:
    """`scorer audit`, and `publisher audit` without a relay's configuration."""
    topics = {part: (TOPIC, f"{name}.{part}", READ) for part in ("events", "scores", "dead", "swaps")}
    return {**topics, "group": (GROUP, name, DESCRIBE)}


def producer(name: str) -> dict[str, Right]:
    """`scorer emit`, and every producer of events."""
    return {"events": (TOPIC, f"{name}.events", WRITE)}


def consumer(name: str) -> dict[str, Right]:
    """`scorer tail`: scores, and dead letters with `--dead`."""
    return {"scores": (TOPIC, f"{name}.scores", READ), "dead": (TOPIC, f"{name}.dead", READ)}


def judge(name: str) -> dict[str, Right]:
    """`scorer judge`."""
    return {part: (TOPIC, f"{name}.{part}", READ) for part in ("scores", "scores.shadow", "dead")}


def controller(name: str) -> dict[str, Right]:
    """`scorer rollout run` and `step`; where a plan compares, also Read on the inputs."""
    return {
        "events": (TOPIC, f"{name}.events", DESCRIBE),
        "decisions": (TOPIC, f"{name}.rollouts", WRITE),
        "decisions before": (TOPIC, f"{name}.rollouts", READ),
        "fleet": (TOPIC, f"{name}.status", READ),
        "notices": (TOPIC, f"{name}.status", WRITE),
        **judge(name),
        "group": (GROUP, f"{name}.rollout", READ),
        "transactions": (TRANSACTIONAL_ID, f"{name}/rollout/*", WRITE),
    }


def operator(name: str) -> dict[str, Right]:
    """`scorer rollout start`, `pause`, `resume`, `approve` and `abort`; the first also looks whether there is a topic of the
    shadow."""
    return {"commands": (TOPIC, f"{name}.rollouts", WRITE), "decisions": (TOPIC, f"{name}.rollouts", READ)}


def watcher(name: str) -> dict[str, Right]:
    """`scorer status`, and `scorer promote`, which writes its notice as well."""
    return {"status": (TOPIC, f"{name}.status", READ), "notice": (TOPIC, f"{name}.status", WRITE)}


def replay(name: str) -> dict[str, Right]:
    """`scorer replay`."""
    return {
        "dead letters": (TOPIC, f"{name}.dead", READ),
        "replayed": (TOPIC, f"{name}.dead.replayed", WRITE),
        "replayed before": (TOPIC, f"{name}.dead.replayed", READ),
        "events": (TOPIC, f"{name}.events", WRITE),
        "transactions": (TRANSACTIONAL_ID, f"{name}/replay/*", WRITE),
    }


def rescore(name: str) -> dict[str, Right]:
    """`scorer rescore`."""
    return {
        "scores": (TOPIC, f"{name}.scores", READ),
        "events": (TOPIC, f"{name}.events", READ),
        "corrections": (TOPIC, f"{name}.scores.corrections", WRITE),
        "progress": (TOPIC, f"{name}.rollouts", WRITE),
        "progress before": (TOPIC, f"{name}.rollouts", READ),
        "transactions": (TRANSACTIONAL_ID, f"{name}/rescore/*", WRITE),
    }


def mover(name: str) -> dict[str, Right]:
    """`scorer offsets --to`; without `--to` Describe on both is enough."""
    return {"group": (GROUP, name, READ), "events": (TOPIC, f"{name}.events", READ)}


def training(name: str) -> dict[str, Right]:
    """`scorer train run`; the verb `snapshot` needs no group."""
    return {
        "events": (TOPIC, f"{name}.events", READ),
        "labels": (TOPIC, f"{name}.outcomes", READ),
        "trigger": (GROUP, f"{name}.training", READ),
        "lease": (GROUP, f"{name}.training.lease", READ),
    }


def recorder(name: str) -> dict[str, Right]:
    """What makes the runs of `training` visible while they happen; without it a run works, and its events are dropped."""
    return {"runs": (TOPIC, f"{name}.runs", WRITE)}


def run_reader(name: str) -> dict[str, Right]:
    """`scorer train list`, `show`, `compare`, `export` and `thresholds`."""
    return {"history": (TOPIC, f"{name}.runs", READ)}


def trigger(name: str) -> dict[str, Right]:
    """What begins runs by the lag of their group: KEDA."""
    return {"labels": (TOPIC, f"{name}.outcomes", DESCRIBE), "trigger": (GROUP, f"{name}.training", DESCRIBE)}


def relay_source(name: str) -> dict[str, Right]:
    """`publisher run` at its source."""
    return {"source": (TOPIC, f"{name}.scores", READ)}


def relay(name: str) -> dict[str, Right]:
    """`publisher run` at its destination, which calls the copies `eu.<topic>`; the last one where it has a refusal topic."""
    return {
        "copies": (TOPIC, f"eu.{name}.scores", WRITE),
        "positions": (TOPIC, f"{name}.checkpoints", WRITE),
        "positions before": (TOPIC, f"{name}.checkpoints", READ),
        "transactions": (TRANSACTIONAL_ID, f"{name}/relay/*", WRITE),
        "refusals": (TOPIC, f"{name}.refusals", WRITE),
    }


def relay_auditor(name: str) -> dict[str, Right]:
    """`publisher audit CONFIG` at the relay's destination; at its source it needs what `relay_source` has."""
    return {
        "copies": (TOPIC, f"eu.{name}.scores", READ),
        "positions": (TOPIC, f"{name}.checkpoints", READ),
        "refusals": (TOPIC, f"{name}.refusals", READ),
    }


def console(name: str) -> dict[str, Right]:
    """`scorer console`, read-only. If one is missing, it reports this on its pages and does not end."""
    return {
        part: (TOPIC, f"{name}.{part}", READ)
        for part in ("status", "swaps", "scores", "dead", "dead.replayed", "rollouts", "runs")
    }


COMPONENTS = {
    "scorer": scorer,
    "shadow": shadow,
    "auditor": auditor,
    "producer": producer,
    "consumer": consumer,
    "judge": judge,
    "controller": controller,
    "operator": operator,
    "watcher": watcher,
    "replay": replay,
    "rescore": rescore,
    "mover": mover,
}
