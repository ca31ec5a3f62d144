"""scorestream as a system under test: package the workload's model, write a configuration, and run `scorer run`.

The harness sets environment variables: BOOTSTRAP, IN_TOPIC, OUT_TOPIC, GROUP, MODEL (an ONNX file), WORKLOAD (tab30 or ffnn),
MODE (eos or alo), and PROFILE for measurements of latency: `latency` sets the target LATENCY_MS. The configuration differs from
the defaults only in these; score records have their full provenance.

    python -m tests.benchmarks.bench.sut
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scorer.settings.batching import DEFAULT_LATENCY_TARGET_MS
from tests.support.processes import command

FIELDS: dict[str, list[object]] = {
    "tab30": [f"f{k}" for k in range(30)],
    "ffnn": [{"name": "x", "array": True, "length": 784}],
}
"""The fields of the only input, by workload."""

LATENCY_MS = 5
DELIVERY = {"eos": "exactly-once", "alo": "at-least-once"}

CONFIGURATION = """\
name: {group}
kafka: {{bootstrap_servers: "{bootstrap}"}}
input: {{topics: [{source}], id: id}}
output: {{topic: {target}}}
dead_letter: {{topic: {target}.dead}}
model: {{source: "oci:./registry/{workload}", tag: prod, cache: ./cache}}
delivery: {delivery}
batching: {{latency_target_ms: {target_ms}}}
http: {{listen: "127.0.0.1:0"}}
"""


def run(*arguments: str, folder: Path) -> None:
    subprocess.run([command(arguments[0]), *arguments[1:]], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    environment = os.environ
    if environment["MODE"] not in DELIVERY:
        sys.exit(f"MODE={environment['MODE']}: not one of {', '.join(DELIVERY)}")
    folder = Path(tempfile.mkdtemp(prefix="scorestream-sut-"))
    prepare(folder)
    os.chdir(folder)
    os.execv(command("scorer"), ["scorer", "run", "scorer.yaml", "--workers", "1"])


def prepare(folder: Path) -> None:
    """Create a registry with the model, the configuration and the topics."""
    environment = os.environ
    workload, group = environment["WORKLOAD"], environment["GROUP"]
    package = folder / "package"
    package.mkdir()
    shutil.copy(environment["MODEL"], package / "model.onnx")
    inputs = [{"tensor": "x", "dtype": "float32", "fields": FIELDS[workload]}]
    (package / "signature.json").write_text(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))
    repository = f"oci:./registry/{workload}"
    run("model-registry", "push", "package", f"{repository}:1.0.0", folder=folder)
    run("model-registry", "promote", repository, "--to", "1.0.0", folder=folder)
    (folder / "scorer.yaml").write_text(
        CONFIGURATION.format(
            group=group,
            bootstrap=environment["BOOTSTRAP"],
            source=environment["IN_TOPIC"],
            target=environment["OUT_TOPIC"],
            workload=workload,
            delivery=DELIVERY[environment["MODE"]],
            target_ms=LATENCY_MS if environment.get("PROFILE") == "latency" else DEFAULT_LATENCY_TARGET_MS,
        )
    )
    run("scorer", "check", "scorer.yaml", "--create", folder=folder)


if __name__ == "__main__":
    main()
