"""Test that each runbook command has the rights it needs with the shipped users, and that relays have no further rights."""

from collections.abc import Iterator

import pytest

from tests.integration.security.conftest import Secured
from tests.integration.security.rights import WRITE
from tests.integration.security.shipped import (
    HOME,
    REGIONS,
    SCORER,
    SCORES_RELAY,
    ShippedRegions,
    rights_of,
    shipped_regions,
)
from tests.packaging.deploy.manifests import of_kind, rendered
from tests.support.runbooks import RunbookCommand, commands, parse, users_by_place

ALL = commands()
OWN = {(step.context, step.place, step.words): step for step in reversed(ALL) if step.place is not None}
"""The commands of the product, each once per place."""
REFUSALS = ("no right to", "denies access", "uthorization failed", "not authorized")
WITH_FINDINGS = {("publisher", "check"): 1, ("scorer", "audit"): 1, ("scorer", "check"): 1, ("scorer", "rollout"): 2}
"""Exit codes beside 0 that are no refusal here: both regions share a cluster, which the relay's check reports, and in which the
audit counts the events of one region as missing in the other one; the newest events are dead letters; no rollout runs."""


@pytest.fixture(scope="module")
def regions(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShippedRegions]:
    with shipped_regions(secured, tmp_path_factory.mktemp("shipped")) as running:
        yield running


def test_every_command_names_a_place_with_its_users() -> None:
    assert {step.place for step in ALL if step.place is not None} <= set(users_by_place())


@pytest.mark.parametrize(
    "step", [pytest.param(step, id=" ".join((*key[:1], str(key[1]), *key[2]))) for key, step in OWN.items()]
)
def test_every_command_of_the_runbooks_has_the_rights_that_it_needs(regions: ShippedRegions, step: RunbookCommand) -> None:
    code, text = regions.run(step)
    assert not any(refusal in text for refusal in REFUSALS), f"{step.page}: {step.line}\n{text}"
    assert code in (0, WITH_FINDINGS.get((step.words[0], step.words[1]), 0)), (
        f"{step.page}: {step.line}\nended with {code}: {text}"
    )


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("scorer audit scorer.yaml", "auditor"),
        ("scorer tail scorer.yaml --no-follow", "auditor"),
        ("scorer replay scorer.yaml --dry-run", "auditor"),
        ("scorer replay scorer.yaml", "replayer"),
    ],
)
def test_a_command_with_the_user_of_the_scorers_is_refused_with_the_role_that_may_run_it(
    regions: ShippedRegions, line: str, role: str
) -> None:
    code, text = regions.run(parse("", f"kubectl exec {SCORER} -- {line}"))
    assert code == 3, text
    assert f"run it as the {role} (deploy/rights.md), or grant" in text
    assert f"User:{HOME}.scorer" not in text


def test_a_relay_with_its_rights_detects_truncated_copies(regions: ShippedRegions) -> None:
    regions.start_relay(HOME, SCORES_RELAY).ready()
    regions.claim_further_copy()
    relay = regions.start_relay(HOME, SCORES_RELAY)
    assert relay.wait() == 3, relay.said
    assert "the copy was truncated or restored" in relay.said


@pytest.mark.parametrize("region", REGIONS)
def test_a_relay_may_write_its_copies_and_positions_only(region: str) -> None:
    users = of_kind(rendered(f"kafka/failover/{region}"), "KafkaUser")
    other = next(each for each in REGIONS if each != region)
    writable = {
        user: {name for kind, name, operation in rights_of(users[user]) if operation is WRITE and "/" not in name}
        for user in ("relay", "relay-inputs", "relay-source", "relay-inputs-source")
    }
    assert writable == {
        "relay": {f"flights.scores.{other}", "flights.scores.ap-south", "scores.checkpoints", "scores-*"},
        "relay-inputs": {f"{other}.flights", "inputs.checkpoints", "inputs-*"},
        "relay-source": set(),
        "relay-inputs-source": set(),
    }
