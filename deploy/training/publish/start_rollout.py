"""Start one rollout of a run's version, as `scorer rollout start` does, instead of moving the channel."""

from pathlib import Path

from publisher.errors import REFUSED, Fatal
from scorer.models.registry_access import open_source
from scorer.rollout.controller import log_topic, preconditions
from scorer.rollout.controller import plan as plans
from scorer.rollout.controller.rollout_state import RolloutLog
from scorer.settings import Settings
from training.publish.promote import ComparedChampion, Overtaken, judged_by, reason_of, standing


def begin_once(
    settings: Settings, plan: Path, version: str, digest: str, judged: ComparedChampion, run: str, actor: str
) -> str | Overtaken:
    """Start a rollout of a version, and return its id. If this run has already started the rollout, only return the id.

    Args:
        settings: The settings of the scorer.
        plan: The file of the rollout plan. If the plan names another candidate than `version`, that name is ignored.
        version: The tag of the candidate.
        digest: The digest that the candidate must have.
        judged: The champion with which the run compared the candidate.
        run: The id of the run.
        actor: The actor to record in the rollout log.

    Returns:
        The id of the rollout, or `Overtaken` if the channel was moved since the comparison.

    Raises:
        Fatal:
            Exit code 2: the plan is not valid, or topics are missing.
            Exit code 3: another rollout runs, `version` does not have the digest `digest`, or the channel has no champion. A
            first version cannot be rolled out.
            Exit code 4: the broker is unreachable.
        RegistryError: A read from the registry failed.
    """
    rollout_plan = plans.read(plan, candidate=version)
    preconditions.check_topics(settings, rollout_plan)
    if (own_rollout := _find_own_rollout(settings, digest, run)) is not None:
        return own_rollout
    serves = standing(open_source(settings), settings.model.tag)
    if serves is None and judged.digest is None:
        message = f"{settings.model.tag!r} has no version to compare {version} with in a rollout"
        raise Fatal(message, "promote a first version with `model-registry promote`; later versions can be rolled out", REFUSED)
    if serves is None or judged_by(serves) != judged:
        return Overtaken(serves)
    revision, rivals = preconditions.resolve_contestants(settings, rollout_plan)
    if rivals.candidate.digest != digest:
        message = f"version {version} has the digest {rivals.candidate.digest}, but this run pushed {digest}"
        raise Fatal(message, "this version was pushed again with other content; see model-registry inspect", REFUSED)
    if ComparedChampion(rivals.champion.digest, revision) != judged:
        return Overtaken(standing(open_source(settings), settings.model.tag))
    try:
        return log_topic.begin(settings, rollout_plan, rivals, revision, actor, reason_of(run))
    except Fatal:
        if (own_rollout := _find_own_rollout(settings, digest, run)) is not None:
            return own_rollout
        raise


def _find_own_rollout(settings: Settings, digest: str, run: str) -> str | None:
    """Return the id of the rollout of this version that this run has started, or None if there is none. Raises Fatal."""
    with log_topic.open_log(settings) as ledger:
        return of_run(ledger, digest, run)


def of_run(ledger: RolloutLog, digest: str, run: str) -> str | None:
    """Return the id of the rollout of this version that this run has started, or None if there is none."""
    rollouts = (rollout for rollout in ledger.rollouts.values() if rollout.rivals.candidate.digest == digest)
    return next((rollout.id for rollout in rollouts if rollout.log[0].why == [reason_of(run)]), None)
