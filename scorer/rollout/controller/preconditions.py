"""What a rollout is started from: the channel's champion, the candidate, and topics that are there. Thin I/O."""

from model_registry.channels import channel
from publisher.errors import REFUSED, USAGE, Fatal
from publisher.kafka.reader import TopicReader
from scorer.evaluation.join_labels import labels_topic
from scorer.models.registry_access import open_source
from scorer.rollout.canary_analysis.contestants import Contestants, ContestVersion, find_version
from scorer.rollout.controller import log_topic
from scorer.rollout.controller.plan import RolloutPlan
from scorer.settings import Settings
from scorer.topics import CREATE_HINT


def resolve_contestants(settings: Settings, plan: RolloutPlan) -> tuple[int, Contestants]:
    """The channel's revision and champion, and the candidate. Raises RegistryError, Fatal."""
    standing = channel.resolve(open_source(settings), settings.model.tag)
    if not standing.revision:
        hint = "follow a channel: model-registry promote REPO --to VERSION makes one"
        raise Fatal(f"model.tag {settings.model.tag!r} is no channel, and cannot be moved", hint, REFUSED)
    candidate = find_version(settings, plan.candidate)
    if candidate.digest == standing.digest:
        raise Fatal(f"{candidate.version} is the champion already", "name another candidate in the plan", REFUSED)
    if candidate.version != plan.candidate:
        raise Fatal(f"candidate: {plan.candidate!r} is no version's tag", "name a version, not a channel or a digest", USAGE)
    return standing.revision, Contestants(ContestVersion(standing.digest, standing.version), candidate)


def check_topics(settings: Settings, plan: RolloutPlan) -> None:
    """Raises Fatal (2) where a topic that the rollout needs is missing, or not named."""
    needed = [settings.rollouts_topic, *([settings.shadow_topic] if plan.judged else [])]
    try:
        TopicReader(settings.kafka, settings.rollout_group).partitions(needed)
    except Fatal as error:
        if error.exit_code == USAGE:
            raise Fatal(str(error), f"{error.hint} {CREATE_HINT}", USAGE) from None
        raise
    if plan.rules.brier is not None:
        labels_topic(settings)


def start(settings: Settings, plan: RolloutPlan, by: str, reason: str) -> tuple[str, Contestants]:
    """Begin a rollout; its id. Raises RegistryError, and Fatal, with 3 where another one runs."""
    revision, found = resolve_contestants(settings, plan)
    check_topics(settings, plan)
    return log_topic.begin(settings, plan, found, revision, by, reason), found
