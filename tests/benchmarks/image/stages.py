"""The stages of the image test. Each returns findings: a claim, the observation, and whether the claim holds."""

import json
import re
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.benchmarks.bench.machine import cpu_seconds
from tests.benchmarks.findings import Finding
from tests.benchmarks.image.build import TRAINING
from tests.benchmarks.image.container import CACHE, GRACE_SECONDS, Container, podman
from tests.integration.relay.counting import CLEAN as COPIED_CLEAN
from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import Rig, events, until
from tests.support import models

CLEAN = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions")
RUN = ("scorer", "run", "scorer.yaml", "--workers", "1", "--set", f"model.cache={CACHE}")
SBOM = "/usr/share/scorestream/sbom.cdx.json"
COUNT = 20_000
COPIES = 200_000
LIMIT = "512m"
QUOTA = 0.5  # CPUs
MEASURE_SECONDS = 8.0
HUNGRY_NUMBERS = 300_000_000  # of 4 bytes: far more than LIMIT


def contents(image: str, folder: Path, extra: str) -> list[Finding]:
    """Check the contents of the image: user, commands, labels, bill of materials."""
    config: dict[str, Any] = json.loads(podman("image", "inspect", "--format", "{{json .Config}}", image))
    labels = {name.rpartition(".")[2] for name in config["Labels"] if name.startswith("org.opencontainers.image.")}
    required_labels = {"title", "description", "licenses", "version", "revision"}
    findings = [
        Finding("user", config["User"], config["User"] == "10001:10001"),
        Finding("no entry point, no health check", "", not config.get("Entrypoint") and not config.get("Healthcheck")),
        Finding("labels", " ".join(sorted(labels)), labels >= required_labels),
    ]
    commands: list[tuple[str, ...]] = [("scorer",), ("publisher",), ("model-registry",)]
    if extra in TRAINING:
        commands.append(("scorer", "train"))
    for command in commands:
        code, output = ended(image, folder, *command, "--help")
        findings.append(Finding(f"{' '.join(command)} --help", f"exit code {code}", code == 0 and "Usage" in output))
    script = "from scorer.native.load import native_library; print(native_library().status)"
    output = ended(image, folder, "python3", "-c", script)[1].strip()
    findings.append(Finding("native scanner", output, output == "built and in use"))
    bill = json.loads(ended(image, folder, "python3", "-c", f"print(open({SBOM!r}).read())")[1])
    parts = {part["name"].lower(): part["version"] for part in bill["components"]}
    runtime = {"gpu": "onnxruntime-gpu"}.get(extra, "onnxruntime")
    needed = {"confluent-kafka", runtime, "numpy", "pydantic", "cryptography"}
    needed |= {"lightgbm", "pyarrow"} if extra in TRAINING else set()
    is_scorestream = bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "scorestream"
    return [*findings, Finding("bill of materials", f"{len(parts)} components", is_scorestream and needed <= set(parts))]


def scores(image: str, rig: Rig) -> list[Finding]:
    """Score all events; the output must be log records only, and the connections to the brokers only."""
    begin = time.monotonic()
    with scorer(image, rig) as container:
        ready(container)
        started = time.monotonic() - begin
        rig.emit(events(COUNT, keys=300))
        until(lambda: rig.answered() >= COUNT, "all scores")
        process = container.process
        peers = {c.raddr.port for c in process.net_connections("tcp") if c.raddr}
        brokers = {int(address.rpartition(":")[2]) for address in rig.bootstrap_servers.split(",")}
        memory = process.memory_info().rss / 2**20
        lines = container.log_text.splitlines()
        threads, owner = process.num_threads(), process.uids().real
    strange = [line for line in lines if not line.startswith("{") or json.loads(line)["level"] in ("ERROR", "CRITICAL")]
    return [
        Finding("ready after", f"{started:.1f} s", started < GRACE_SECONDS),
        *audited(rig, COUNT),
        Finding("resident memory", f"{memory:.0f} MiB", memory < 512),
        Finding("threads", str(threads), threads < 100),
        Finding("user id", str(owner), owner == 10001),
        Finding("its log is records, none of them an error", "; ".join(strange[:3]), not strange),
        Finding("connected to", "brokers only" if peers <= brokers else str(peers), peers <= brokers),
    ]


def stops(image: str, rig: Rig) -> list[Finding]:
    """Send SIGTERM while events flow: the scorer ends within the grace period, and commits the offsets of answered events."""
    flow = threading.Thread(target=rig.emit, args=(events(COUNT, keys=300), "--rate", "4000"))
    with scorer(image, rig) as container:
        ready(container)
        flow.start()
        until(lambda: rig.answered() >= COUNT // 10, "the first scores")
        begin = time.monotonic()
        code = container.stop()
        seconds = time.monotonic() - begin
    committed = sum(mark["offset"] for mark in rig.marks().values())
    answered = len(rig.scores())
    flow.join()
    with scorer(image, rig) as container:
        ready(container)
        until(lambda: rig.answered() >= COUNT, "all scores")
    return [
        Finding("ended after", f"{seconds:.1f} s of {GRACE_SECONDS}", seconds < GRACE_SECONDS / 2),
        Finding("exit code", str(code), code == 0),
        Finding("committed and answered", f"{committed} and {answered}", committed == answered and 0 < answered < COUNT),
        *audited(rig, COUNT),
    ]


def runs_out_of_memory(image: str, rig: Rig) -> list[Finding]:
    """Send an event that needs more memory than the limit: the kernel kills the worker, then its examiners. The container keeps
    running, and dead-letters only this event."""
    flow = [{**event, "b": float(HUNGRY_NUMBERS if number == 2_000 else 0)} for number, event in enumerate(events(4_000))]
    with scorer(image, rig, f"--memory={LIMIT}", f"--memory-swap={LIMIT}") as container:
        ready(container)
        rig.emit(flow)
        until(lambda: rig.answered() >= len(flow), "all answers")
        running, killed = container.running, container.out_of_memory
    reasons = [letter["reason"] for letter in rig.dead()]
    observed = f"{'runs on' if running else 'ended'}{', one killed by the kernel' if killed else ''}"
    return [
        Finding(f"at its limit of {LIMIT}", observed, running and killed),
        Finding("dead-lettered", str(reasons), reasons == ["crashes-scorer"]),
        *audited(rig, len(flow)),
    ]


def keeps_to_its_share(image: str, rig: Rig) -> list[Finding]:
    """Score a backlog: the scorer stays within its CPU quota, and remains alive and ready."""
    count = 1_000_000
    rig.emit(events(count, keys=300))
    with scorer(image, rig, f"--cpus={QUOTA}") as container:
        address = ready(container)
        until(lambda: rig.answered() > 0, "the first scores")
        process = container.process
        begin = time.monotonic()
        used = cpu_seconds(process.pid)
        first = rig.answered()
        answered = 0
        probes = []
        while (passed := time.monotonic() - begin) < MEASURE_SECONDS and answered < count:
            probes.append(status(f"{address}/livez") == 200 and status(f"{address}/readyz") == 200)
            answered = rig.answered()
        share = (cpu_seconds(process.pid) - used) / passed
        throttled_periods = throttled(process.pid)
    return [
        Finding(f"CPUs used of {QUOTA}", f"{share:.2f}", 0 < share < 1.1 * QUOTA),
        Finding("periods in which the kernel throttled it", str(throttled_periods), throttled_periods > 0),
        Finding("answered during the measurement", f"{(answered - first) / passed:.0f} events/s", answered > first),
        Finding("successful probes", f"{sum(probes)} of {len(probes)}", all(probes) and len(probes) > 1),
    ]


def refuses_without_a_card(image: str, rig: Rig) -> list[Finding]:
    """Start with `device=cuda` without a card: the scorer reports it and ends. Of CUDA, only the driver is missing."""
    command = [*RUN, "--set", "replica=scorer-0", "--set", "model.device=cuda"]
    code, output = ended(image, rig.folder, *command)
    missing = re.findall(r"(lib\w+)[.\w]*: cannot open", output)
    return [
        Finding("exit code", str(code), code == 3 and "does not run on CUDA" in output),
        Finding("missing libraries", " ".join(missing), set(missing) == {"libcuda"}),
    ]


def relays(image: str, source: str, folder: Path) -> list[Finding]:
    """Send SIGTERM while a relay copies: it ends within the grace period, and its successor continues at its position."""
    folder.mkdir()
    folder.chmod(0o755)  # the container's user reads it
    with EmbeddedBroker() as far:
        rig = RelayRig((source, far.bootstrap_servers), folder, f"relay-{time.time_ns()}")
        try:
            return _stopped_and_continued(image, rig)
        finally:
            rig.close()


def _stopped_and_continued(image: str, rig: RelayRig) -> list[Finding]:
    run = [
        "publisher",
        "run",
        rig.path.name,
        "--set",
        "bytes_per_second=200000",
    ]  # slow, so that the relay is still copying at SIGTERM
    rig.create(rig.source)
    rig.fill(COPIES)
    with Container(image, rig.folder, run) as container:
        ready(container)
        rig.wait_copied(1)
        begin = time.monotonic()
        code = container.stop()
        seconds = time.monotonic() - begin
    copied = rig.copied()
    with Container(image, rig.folder, run[:3]) as container:
        ready(container)
        rig.wait_copied(COPIES)
    audit = rig.audit()
    return [
        Finding("exit code", str(code), code == 0),
        Finding("ended after", f"{seconds:.1f} s of {GRACE_SECONDS}", seconds < GRACE_SECONDS / 2),
        Finding("copied when it ended", f"{copied} of {COPIES}", 0 < copied < COPIES),
        Finding("records copied exactly once", f"{COPIES} {audit if audit != COPIED_CLEAN else ''}", audit == COPIED_CLEAN),
    ]


def prepared(bootstrap_servers: str, folder: Path, name: str) -> Rig:
    """Create topics, and a version in production: y = 2a, whose computation takes 4b bytes of memory."""
    folder.mkdir()
    folder.chmod(0o755)  # the container's user reads it
    rig = Rig(bootstrap_servers, folder, name)
    rig.push(models.package(folder / "one", models.hungry), "1.0.0")
    rig.promote("1.0.0")
    rig.create(6)
    return rig


def ended(image: str, folder: Path, *command: str) -> tuple[int, str]:
    with Container(image, folder, command) as container:
        until(lambda: not container.running, f"the end of {command}")
        return int(container.state["ExitCode"]), container.log_text


def scorer(image: str, rig: Rig, *limits: str) -> Container:
    """Start a scorer in its own container, always with the same replica."""
    return Container(image, rig.folder, [*RUN, "--set", "replica=scorer-0"], *limits)


def ready(container: Container) -> str:
    """Wait until the scorer is in its group; return the address of its health. Fails if the container ends."""

    def answers() -> bool:
        log_text = container.log_text
        assert container.running, log_text
        return "http://" in log_text and status(_address(log_text) + "/readyz") == 200

    until(answers, "readiness")
    return _address(container.log_text)


def status(address: str) -> int:
    """Return the status of a GET, or 0 without an answer in time."""
    try:
        with urllib.request.urlopen(address, timeout=3) as answer:
            code: int = answer.status
            return code
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def throttled(pid: int) -> int:
    """Return the number of periods in which the kernel throttled the control group (version 1 or 2) of a process."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "cpu" in controllers.split(","):
            root = Path("/sys/fs/cgroup") / ("" if number == "0" else "cpu")
            counts = root / path.lstrip("/") / "cpu.stat"
            if counts.exists():
                return int(dict(row.split() for row in counts.read_text().splitlines())["nr_throttled"])
    raise RuntimeError(f"process {pid} is in no control group for CPUs")


def audited(rig: Rig, count: int) -> list[Finding]:
    """Audit the scores independently: none is lost, duplicated, invented or reordered."""
    audit = rig.audit()
    wrong = {fault: audit[fault] for fault in CLEAN if audit[fault]}
    return [Finding("events answered exactly once", f"{audit['inputs']} {wrong or ''}", audit["inputs"] == count and not wrong)]


def _address(log_text: str) -> str:
    return "http://" + log_text.rpartition("http://")[2].split('"')[0].split()[0]
