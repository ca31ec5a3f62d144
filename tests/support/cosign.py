"""`python -m tests cosign`: exchange signatures and attestations with cosign 3 through a real docker-registry.

cosign verifies the signatures and attestations of model-registry, and model-registry verifies those of cosign. The first run
builds cosign with Go, which takes about three minutes. cosign can reach only the registry on the loopback interface: it has a
key and the option `--insecure-ignore-tlog`, and therefore needs no trust root.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.registry.server import DockerRegistry, running
from tests.support.golang import program

MODULE = "github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3"
PACKAGE = Path(__file__).parents[2] / "scorer" / "demo" / "data" / "flight-delay-2.0.0"
FIGURES = {"dataset": "flights 2013", "metrics": {"auc": 0.93}}
TYPE = "https://scorestream.io/attestations/evaluation/v1"
NOWHERE = "http://127.0.0.1:1"  # no proxy listens here, so cosign reaches only loopback addresses
UNLOGGED = ("--tlog-upload=false", "--use-signing-config=false", "--yes")


class Stage:
    """A registry with one pushed package, and the commands of model-registry (`ours`) and cosign, each with a key."""

    def __init__(self, cosign: Path, folder: Path, address: str) -> None:
        self._program, self._folder = cosign, folder
        self.ref = f"{address}/team/flight-delay:1.0.0"
        (folder / "figures.json").write_text(json.dumps(FIGURES))
        self.ours("keygen", "release")
        self.ours("keygen", "stranger")
        self.ours("push", str(PACKAGE), self.ref)
        self.cosign("generate-key-pair")

    def ours(self, *arguments: str, code: int = 0) -> str:
        return self._run(str(Path(sysconfig.get_path("scripts")) / "model-registry"), "--plain-http", *arguments, code=code)

    def cosign(self, *arguments: str, code: int = 0) -> str:
        return self._run(str(self._program), *arguments, code=code)

    def _run(self, *command: str, code: int) -> str:
        environment = os.environ | dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
        environment |= {"COSIGN_PASSWORD": "", "HOME": str(self._folder), "NO_PROXY": "localhost,127.0.0.1"}
        completed = subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True, check=False)
        if completed.returncode != code:
            raise AssertionError(
                f"{command} ended with {completed.returncode}, not {code}:\n{completed.stdout}{completed.stderr}"
            )
        return completed.stdout


def cosign_verifies_our_signature(stage: Stage) -> None:
    signed = json.loads(stage.ours("sign", stage.ref, "--key", "release.key", "--json"))
    assert signed["names"] == ["flight-delay:1.0.0"]
    (payload,) = json.loads(stage.cosign("verify", "--key", "release.pub", "--insecure-ignore-tlog", stage.ref))
    digest = json.loads(stage.ours("inspect", stage.ref, "--json"))["digest"]
    assert payload["critical"]["image"]["docker-manifest-digest"] == digest


def cosign_refuses_a_stranger(stage: Stage) -> None:
    stage.cosign("verify", "--key", "stranger.pub", "--insecure-ignore-tlog", stage.ref, code=1)


def we_verify_the_signature_of_cosign(stage: Stage) -> None:
    stage.ours("verify", stage.ref, "--key", "cosign.pub", code=3)
    stage.cosign("sign", "--key", "cosign.key", *UNLOGGED, stage.ref)
    stage.ours("verify", stage.ref, "--key", "cosign.pub")
    stage.ours("verify", stage.ref, "--key", "release.pub")


def cosign_verifies_our_attestation(stage: Stage) -> None:
    stage.ours("attest", stage.ref, "--predicate", "figures.json", "--type", "evaluation", "--key", "release.key")
    verify = ("verify-attestation", "--insecure-ignore-tlog", "--type", TYPE, "--key")
    envelope = json.loads(stage.cosign(*verify, "release.pub", stage.ref).splitlines()[0])
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    stage.cosign(*verify, "stranger.pub", stage.ref, code=1)


def we_verify_the_attestation_of_cosign(stage: Stage) -> None:
    stage.cosign("attest", "--key", "cosign.key", "--predicate", "figures.json", "--type", TYPE, *UNLOGGED, stage.ref)
    inspected = json.loads(stage.ours("inspect", stage.ref, "--key", "cosign.pub", "--json"))
    attestations: list[dict[str, Any]] = [attestation for attestation in inspected["attestations"] if attestation["verified"]]
    assert [(attestation["type"], attestation["key"], attestation["predicate"]) for attestation in attestations] == [
        (TYPE, "cosign.pub", FIGURES)
    ]


def cosign_signs_with_our_key(stage: Stage) -> None:
    stage.ours("push", str(PACKAGE), f"{stage.ref}-b")
    stage.cosign("import-key-pair", "--key", "stranger.key", "--output-key-prefix", "imported")
    stage.cosign("sign", "--key", "imported.key", *UNLOGGED, f"{stage.ref}-b")
    stage.ours("verify", f"{stage.ref}-b", "--key", "stranger.pub")


PROOFS: tuple[Callable[[Stage], None], ...] = (
    cosign_verifies_our_signature,
    cosign_refuses_a_stranger,
    we_verify_the_signature_of_cosign,
    cosign_verifies_our_attestation,
    we_verify_the_attestation_of_cosign,
    cosign_signs_with_our_key,
)


def main() -> int:
    """Run every proof; return 0 if all succeed, 1 if a proof fails, 2 if a program is missing."""
    argparse.ArgumentParser(prog="python -m tests cosign", description=__doc__).parse_args()
    if shutil.which("docker-registry") is None:
        print("apt-get install -y --no-install-recommends docker-registry", file=sys.stderr)
        return 2
    try:
        cosign = program(MODULE)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cosign cannot be built: {error}; it takes Go 1.26 or newer", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory() as name, running(DockerRegistry(Path(name) / "registry")) as registry:
        (Path(name) / "work").mkdir()
        stage = Stage(cosign, Path(name) / "work", registry.address)
        for proof in PROOFS:
            try:
                proof(stage)
            except AssertionError as error:
                failed += 1
                print(f"FAILED {proof.__name__.replace('_', ' ')}: {error}")
            else:
                print(f"ok     {proof.__name__.replace('_', ' ')}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
