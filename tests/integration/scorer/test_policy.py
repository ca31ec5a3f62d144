"""A scorer with a policy, on the real broker: it loads no version without a trusted signature, with the registry up or down."""

import json
import shutil

import yaml

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support import models
from tests.support.attested import comparison

REPO = "oci:./registry/model"


def policy(rig: Rig, **changes: object) -> None:
    """Write the policy file: signatures required, under the version's name, one trusted key."""
    document = {"signatures": "required", "names": "required", "keys": [{"id": "release", "file": "release.pub"}], **changes}
    (rig.folder / "policy.yaml").write_text(yaml.safe_dump(document))


def sign(rig: Rig, version: str, key: str = "release") -> str:
    completed = rig.run("model-registry", "sign", f"{REPO}:{version}", "--key", f"{key}.key", "--json")
    digest: str = json.loads(completed.stdout)["digest"]
    return digest


def test_a_scorer_loads_only_versions_that_its_policy_admits(make_rig: MakeRig) -> None:
    rig = make_rig(model={"policy": "./policy.yaml"})
    for name in ("release", "stranger"):
        rig.run("model-registry", "keygen", name)
    for version, factor in (("1.0.0", 2.0), ("2.0.0", 3.0)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
    rig.promote("1.0.0")
    policy(rig, keys=[{"id": "release", "file": "nowhere.pub"}])
    rig.create(code=1)
    assert "nowhere.pub" in rig.run("scorer", "run", "scorer.yaml", code=2).stderr
    policy(rig)
    first = rig.start("a")
    until(lambda: "there is no signature" in first.said, "the refusal")
    digest = sign(rig, "1.0.0")
    rig.run("scorer", "check", "scorer.yaml")
    rig.promote("1.0.0", "signed now")
    first.ready()
    sign(rig, "2.0.0", "stranger")
    rig.promote("2.0.0")
    until(lambda: first.metric("scorer_versions_refused_total") == 2, "the refusal")
    assert "the signature is not from a trusted key" in first.said
    rig.emit(events(50))
    until(lambda: rig.answered() == 50, "scores of the version that is trusted")
    sign(rig, "2.0.0")
    rig.promote("2.0.0", "signed now")
    until(lambda: first.metric("scorer_model_revision") == 4, "the signed version")
    rig.promote("1.0.0")
    until(lambda: first.metric("scorer_model_revision") == 5, "the way back")
    assert first.stop() == 0

    shutil.move(rig.folder / "registry", rig.folder / "away")
    second = rig.start("b").ready()
    assert "last good version" in second.said
    assert second.stop() == 0
    policy(rig, denied=[digest])
    third = rig.start("c")
    until(lambda: "is denied by the policy" in third.said, "the refusal")
    until(lambda: third.get("/readyz")[0] == 503, "the reason")
    assert "no model version to serve" in third.get("/readyz")[1]
    assert third.stop() == 0


def attest(rig: Rig, version: str, digest: str, verdict: str = "passed") -> None:
    (rig.folder / "comparison.json").write_text(json.dumps(comparison(digest, verdict)))
    options = ("--type", "comparison", "--predicate", "comparison.json", "--key", "release.key")
    rig.run("model-registry", "attest", f"{REPO}:{version}", *options)


def test_a_scorer_loads_only_versions_with_a_passed_comparison_if_its_policy_requires_one(make_rig: MakeRig) -> None:
    rig = make_rig(model={"policy": "./policy.yaml"})
    rig.run("model-registry", "keygen", "release")
    for version, factor in (("1.0.0", 2.0), ("2.0.0", 3.0)):
        rig.push(models.linear_package(rig.folder / version, factor), version)
    digests = {version: sign(rig, version) for version in ("1.0.0", "2.0.0")}
    rig.promote("1.0.0")
    policy(rig, comparisons="required")
    rig.create(code=1)
    first = rig.start("a")
    until(lambda: "it has no comparison" in first.said, "the refusal")
    assert f"@{digests['1.0.0']} --type comparison" in first.said
    attest(rig, "1.0.0", digests["1.0.0"])
    rig.run("scorer", "check", "scorer.yaml")
    rig.promote("1.0.0", "compared now")
    first.ready()
    attest(rig, "2.0.0", digests["2.0.0"], "refused")
    rig.promote("2.0.0")
    until(lambda: first.metric("scorer_versions_refused_total") == 2, "the refusal")
    assert "'release' signed the verdict 'refused': the rule not-worse did not pass" in first.said
    rig.emit(events(50))
    until(lambda: rig.answered() == 50, "scores of the version that passed")
    attest(rig, "2.0.0", digests["2.0.0"])
    rig.promote("2.0.0", "compared again")
    until(lambda: first.metric("scorer_model_revision") == 4, "the version that passed since")
    assert first.stop() == 0

    shutil.move(rig.folder / "registry", rig.folder / "away")
    second = rig.start("b").ready()
    assert "last good version" in second.said
    assert second.stop() == 0
