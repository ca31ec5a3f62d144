"""`python3 -m tests`: the whole check, on a fresh clone with nothing but Python 3.11 or newer.

Creates the virtual environment, then runs format, lint, layers, Dockerfile and all tests, with types and the tests that need
torch beside them, and ends with a table and a line of counts. A test that misses a Debian program is listed as NOT RUN with
the line that installs it; with CI=true that is a failure. A few failed tests are repeated one after the other; one that
passes then is listed as FLAKY. Standard library only.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tests.support.debian import FAILED_FILE, NOT_RUN_FILE, PACKAGES, install_line
from tests.support.environment import ROOT, Unusable, prepare, variables, with_gpu, with_torch

STEPS = {
    "format": ("ruff", "format", "--check", "."),
    "lint": ("ruff", "check", "."),
    "types": ("mypy",),
    "layers": ("lint-imports",),
    "dockerfile": ("hadolint", "Dockerfile"),
    # Five processes on two cores: end-to-end tests wait more than they compute. Groups of tests: tests/support/grouping.py.
    "pytest": ("pytest", "--numprocesses=5", "--dist=loadscope", "--no-loadscope-reorder"),
    "network": ("pytest", "tests/network", "--override-ini=cache_dir=.pytest_cache/network"),
}
"""Name to command; the programs are those of the virtual environment."""
BESIDE = ("types",)
"""Steps that run one after the other beside all others. They compute while the tests of the step `pytest` wait.

The step `network` is none of them: beside five workers of pytest its trainings take nine minutes instead of two."""
TORCH = ("network", "distributed")
"""Steps and commands that need torch, in a separate environment of 5 GB."""
RUNS = {
    "backends": ("tests.integration.backends", "conformance suite and faults under load on every backend"),
    "canary": ("tests.chaos.canary", "canaries under kills; counts which version answered which key"),
    "faults": ("tests.chaos.faults", "scorers under faults; counts lost and duplicated events"),
    "fuzz": ("tests.chaos.fuzz", "hostile records, versions and batches"),
    "pauses": ("tests.chaos.pauses", "pauses of scores while scorers are restarted, stopped and scaled"),
    "relay": ("tests.chaos.relay", "relays under faults"),
    "rescore": ("tests.benchmarks.rescore", "scorer rescore under kill -9; counts missing and duplicated corrections"),
    "rollouts": ("tests.chaos.rollouts", "rollouts under kill -9 of every process but the broker"),
    "training": ("tests.chaos.training", "training runs under kill -9; compares the registry"),
    "bench": ("tests.benchmarks.bench", "throughput and latency beside other programs"),
    "contract": ("tests.benchmarks.training.contract", "the cost of the file contract of recipes compared with a direct call"),
    "distributed": ("tests.benchmarks.training.distributed", "a network trained by two processes: ms per step"),
    "gate": ("tests.benchmarks.training.gate", "error rates of the validation gate on real flights"),
    "gpu": ("tests.benchmarks.gpu", "CUDA and TensorRT on a real GPU"),
    "iceberg": ("tests.integration.iceberg", "the feature log in an Iceberg table, through Kafka Connect under kill -9"),
    "judge": ("tests.benchmarks.judge", "error rates of the rollout analysis on simulated candidates"),
    "labels": ("tests.benchmarks.labels", "a million labels joined with scores, compared with scikit-learn"),
    "learning": ("tests.benchmarks.training.learning", "successive halving, reproducibility and ONNX parity"),
    "mlflow-runs": ("tests.integration.training.mlflow_export", "exported training runs, read by MLflow"),
    "models": ("tests.benchmarks.models", "exported models, compared with ONNX Runtime called directly"),
    "snapshot": ("tests.benchmarks.training.snapshot", "a million labelled events, frozen and copied from a broker"),
    "brokers": ("tests.benchmarks.brokers", "the demo on other versions of Apache Kafka"),
    "coverage": ("tests.coverage", "branch coverage of unit, conformance and integration tests together"),
    "cluster": ("tests.packaging.cluster", "the chart on a real Kubernetes API server"),
    "cosign": ("tests.support.cosign", "signatures exchanged with cosign"),
    "mlflow-models": ("tests.support.mlflow_real", "model folders that the real MLflow writes, packaged and pushed"),
    "deploy": ("tests.packaging.deploy", "render and check manifests, dashboards and alerts"),
    "image": ("tests.benchmarks.image", "build, run and kill the container image"),
    "seeing": ("tests.benchmarks.seeing", "alerts, dashboards and runbooks with a real Prometheus"),
}
"""The long commands by name: the module, which has its own options, and a description."""
MAX_REPEATED = 5  # failed tests; if more fail, the machine is not the reason


@dataclass(frozen=True)
class Outcome:
    """The result of a step.

    Attributes:
        step: the name of the step.
        seconds: how long the step took.
        passed: the number of tests that passed.
        failed: the number of tests that failed.
        not_run: (test, Debian package or reason) of each test that was not run.
        flaky: the tests that failed, and passed when they were repeated. They count as passed.
    """

    step: str
    seconds: float
    passed: int = 0
    failed: int = 0
    not_run: tuple[tuple[str, str], ...] = ()
    flaky: tuple[str, ...] = ()


def main(arguments: Sequence[str]) -> int:
    """Run the check; return 0 if nothing failed, 1 if a test failed, 2 if the check could not run."""
    if arguments and arguments[0] in RUNS:
        return run_apart(arguments[0], arguments[1:])
    own_arguments, pytest_arguments = split(arguments)
    if own_arguments[:1] == ["unit"]:
        own_arguments, pytest_arguments = (
            ["--only", "pytest", *own_arguments[1:]],
            ["tests/unit", "--hypothesis-profile=quick", *pytest_arguments],
        )
    options = _parser().parse_args(own_arguments)
    if options.debian_packages:
        print("\n".join(sorted(set(PACKAGES.values()))))
        return 0
    try:
        folder = prepare()
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    outcomes = run_steps([name for name in STEPS if not options.only or name in options.only], folder, pytest_arguments)
    failed = sum(outcome.failed for outcome in outcomes)
    print("\n".join(report(outcomes)), flush=True)
    return 1 if failed else 0


def run_steps(steps: Sequence[str], folder: Path, pytest_arguments: Sequence[str]) -> list[Outcome]:
    """Run steps in the environment `folder` and return their outcomes, in the order of `steps`.

    With the step `pytest`, the steps in BESIDE run at the same time.
    """
    background = [name for name in steps if name in BESIDE and "pytest" in steps]
    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(3) as beside:  # torch takes minutes to install: while the other steps run
        torch_environment = beside.submit(with_torch, folder) if set(steps) & set(TORCH) else None
        compiled = beside.submit(compile_tests, folder) if "pytest" in steps and len(steps) > 1 else None
        ending = beside.submit(lambda: [attempt_beside(name, folder, torch_environment) for name in background])
        for name in steps:
            if compiled and name == "pytest":
                compiled.result()
            if name not in background:
                outcomes[name] = attempt(name, folder, pytest_arguments, torch_environment)
        outcomes |= {outcome.step: outcome for outcome in ending.result()}
    return [outcomes[name] for name in steps]


def run_apart(name: str, arguments: Sequence[str]) -> int:
    """Run a long command in the virtual environment; return its exit code, or 2 if there is no environment."""
    try:
        folder = with_gpu() if name == "gpu" else with_torch(prepare()) if name in TORCH else prepare()
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    command = [str(folder / "bin" / "python3"), "-m", RUNS[name][0], *arguments]
    return subprocess.run(command, env=variables(folder), check=False).returncode


def compile_tests(folder: Path) -> None:
    """Write the bytecode of all tests and of the modules that they import, by a run of pytest that only collects.

    Without this run, each process of the step `pytest` compiles the tests of a fresh clone and rewrites their assertions: 19 s
    of CPU time for each process instead of 8 s. It runs beside the steps before the step `pytest`.
    """
    command = [str(folder / "bin" / "python3"), "-m", "pytest", "--collect-only", "--quiet"]
    subprocess.run(command, cwd=ROOT, env=variables(folder), capture_output=True, check=False)


def attempt_beside(step: str, folder: Path, torch_environment: "Future[Path] | None" = None) -> Outcome:
    """Run one step and print its output when it has ended; see `attempt`."""
    with tempfile.TemporaryFile("w+") as output:
        outcome = attempt(step, folder, (), torch_environment, output)
        output.seek(0)
        print(output.read(), end="", flush=True)
    return outcome


def attempt(
    step: str,
    folder: Path,
    pytest_arguments: Sequence[str],
    torch_environment: "Future[Path] | None" = None,
    output: IO[str] | None = None,
) -> Outcome:
    """Run one step in its environment, with torch in `made`; without an environment the step has failed.

    With the file `output`, the step writes its output there.
    """
    begin = time.monotonic()
    try:
        environment = (torch_environment.result() if torch_environment else with_torch(folder)) if step in TORCH else folder
        outcome = run(step, environment, pytest_arguments, output)
    except Unusable as error:
        print(error, file=sys.stderr)
        outcome = Outcome(step, 0.0, failed=1)
    return replace(outcome, step=step, seconds=time.monotonic() - begin)


def run(step: str, folder: Path, pytest_arguments: Sequence[str], output: IO[str] | None = None) -> Outcome:
    """Run one step and stream its output to this process's output, or to the file `output`; see `attempt`."""
    program, *arguments = STEPS[step]
    arguments += pytest_arguments if step == "pytest" else []
    print(f"\n== {step}: {shlex.join([program, *arguments])}", file=output, flush=True)
    if program == "pytest":
        return run_pytest([str(folder / "bin" / "python3"), "-m", program], arguments, variables(folder), output=output)
    command = [str(folder / "bin" / program), *arguments]
    code = subprocess.run(
        command, cwd=ROOT, env=variables(folder), check=False, stdout=output, stderr=output and subprocess.STDOUT
    ).returncode
    return Outcome(step, 0.0, passed=int(code == 0), failed=int(code != 0))


def run_pytest(
    pytest: Sequence[str],
    arguments: Sequence[str],
    environment: dict[str, str],
    root: Path = ROOT,
    output: IO[str] | None = None,
) -> Outcome:
    """Run pytest and count its tests; in CI a test that did not run has failed.

    At most MAX_REPEATED failed tests are repeated in one process: the load of the other processes may be the reason. The
    output has both runs.
    """
    outcome, failed = _run_pytest_once([*pytest, *arguments], environment, root, output)
    stops_early = any(option in ("-x", "--exitfirst") or option.startswith("--maxfail") for option in arguments)
    if stops_early or not 0 < outcome.failed == len(failed) <= MAX_REPEATED:
        return outcome
    print(f"\n== {len(failed)} failed tests again, one after the other", file=output, flush=True)
    repeated, failed_again = _run_pytest_once([*pytest, *failed], environment, root, output)
    flaky = tuple(test for test in failed if test not in failed_again)
    if repeated.passed != len(flaky):  # pytest itself failed
        return outcome
    return replace(outcome, passed=outcome.passed + len(flaky), failed=outcome.failed - len(flaky), flaky=flaky)


def _run_pytest_once(
    command: Sequence[str], environment: dict[str, str], root: Path, output: IO[str] | None
) -> tuple[Outcome, list[str]]:
    """Run pytest; return the outcome and the ids of the failed tests."""
    with tempfile.TemporaryDirectory() as folder:
        results, list_file, failed_file = Path(folder, "results.xml"), Path(folder, "not-run"), Path(folder, "failed")
        files = {NOT_RUN_FILE: str(list_file), FAILED_FILE: str(failed_file)}
        code = subprocess.run(
            [*command, f"--junit-xml={results}"],
            cwd=root,
            env={**environment, **files},
            check=False,
            stdout=output,
            stderr=output and subprocess.STDOUT,
        ).returncode
        passed, failed, skipped = count(results.read_text()) if results.is_file() else (0, 0, ())
        lines = list_file.read_text().splitlines() if list_file.is_file() else []
        failed_tests = failed_file.read_text().splitlines() if failed_file.is_file() else []
    not_run = tuple((test, package) for package, _, test in (line.partition("\t") for line in lines))
    not_run += tuple((test, "skipped by pytest") for test in skipped)
    if os.environ.get("CI") == "true":
        failed += len(not_run)
    if code != 0:
        failed = max(1, failed)  # pytest itself failed: nothing collected, a wrong option, an internal error
    return Outcome("pytest", 0.0, passed, failed, not_run), failed_tests


def count(results: str) -> tuple[int, int, tuple[str, ...]]:
    """Return passed, failed (with errors) and the names of skipped tests from pytest's JUnit XML."""
    passed = failed = 0
    skipped: list[str] = []
    for case in ElementTree.fromstring(results).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            passed += 1
    return passed, failed, tuple(skipped)


def report(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the lines of the closing table; the last is `N passed, N failed`."""
    lines = ["", f"{'step':<12}{'result':<9}{'seconds':>8}"]
    for outcome in outcomes:
        result = "FAILED" if outcome.failed else "ok"
        lines.append(f"{outcome.step:<12}{result:<9}{outcome.seconds:>8.1f}")
    not_run = [entry for outcome in outcomes for entry in outcome.not_run]
    lines += [f"NOT RUN     {test} ({reason})" for test, reason in not_run]
    lines += [f"FLAKY       {test} (failed, then passed alone)" for outcome in outcomes for test in outcome.flaky]
    packages = {reason for _, reason in not_run} & set(PACKAGES.values())
    if packages:
        lines.append(f"to run them: {install_line(packages)}")
    passed, failed = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("passed", "failed"))
    return [*lines, f"{passed} passed, {failed} failed"]


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into our own and, after `--`, pytest's."""
    words = list(arguments)
    divider = words.index("--") if "--" in words else len(words)
    return words[:divider], words[divider + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests",
        usage="%(prog)s [unit | NAME ...] [options] [-- options of pytest]",
        description="Run the whole check, the unit tests, or one of the long commands below with its own options.",
        epilog="long commands:\n" + "\n".join(f"  {name:<13}{summary}" for name, (_, summary) in RUNS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=list(STEPS), help="only this step; may be repeated")
    parser.add_argument("--debian-packages", action="store_true", help="print the Debian packages of all tests and end")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
