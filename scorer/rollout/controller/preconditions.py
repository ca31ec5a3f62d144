"""Check the preconditions of a rollout: the channel, its champion, the candidate, and the needed topics. Thin I/O."""

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
    """Return the channel's revision, and the versions of champion and candidate.

    Raises:
        RegistryError: If the registry is unavailable or has no such version.
        Fatal: If the tag is not a channel, or if the candidate cannot be rolled out.
    """
    resolution = channel.resolve(open_source(settings), settings.model.tag)
    if not resolution.revision:
        hint = "follow a channel; create one with `model-registry promote REPO --to VERSION`"
        raise Fatal(f"model.tag {settings.model.tag!r} is not a channel and cannot be moved", hint, REFUSED)
    candidate = find_version(settings, plan.candidate)
    if candidate.digest == resolution.digest:
        raise Fatal(f"{candidate.version} is the champion already", "name another candidate in the plan", REFUSED)
    if candidate.version != plan.candidate:
        message = f"candidate: {plan.candidate!r} is not the tag of a version"
        raise Fatal(message, "name a version, not a channel or a digest", USAGE)
    return resolution.revision, Contestants(ContestVersion(resolution.digest, resolution.version), candidate)


def check_topics(settings: Settings, plan: RolloutPlan) -> None:
    """Raise Fatal with code 2 if a topic that the rollout needs is missing or not configured."""
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
    """Check the preconditions, start a rollout, and return its id and its two versions.

    Raises:
        RegistryError: If the registry is unavailable or has no such version.
        Fatal: If a precondition is not met; with code 3 if another rollout runs.
    """
    revision, contestants = resolve_contestants(settings, plan)
    check_topics(settings, plan)
    return log_topic.begin(settings, plan, contestants, revision, by, reason), contestants
