"""How fast a model goes into a registry and out again, and what memory that takes, beside skopeo on the same machine.

A model of random bytes, Debian's docker-registry on loopback, and in each round the same four transfers: push and pull here, in
a fresh process each, and `skopeo copy` from and to an OCI layout. Every transfer ends with all checksums checked and the files
on the disk. Exit code 1 where memory or rate (the medians) miss the target.

    python -m tests.proofs.bench.registry [--mebibytes 1024] [--rounds 3] [--json]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.integration.registry.server import DockerRegistry, running
from tests.proofs.bench.counting import spread
from tests.proofs.bench.machine import status_mib

MOST_MEMORY = 100.0  # MiB above the idle process
LEAST_RATE = 0.7  # of skopeo's
CHUNK = 1 << 20


def transfer(direction: str, repository: str, folder: Path) -> dict[str, float]:
    """One push or pull in this process: seconds, and its memory in MiB before and at most."""
    from model_registry import package
    from model_registry.oci import reference
    from model_registry.stores import StoreOptions, open_store

    store = open_store(reference.parse(repository), options=StoreOptions(plain_http=True))
    there = store.tags()
    idle, began = status_mib("VmRSS"), time.monotonic()
    if direction == "push":
        package.push(store, folder, "model", f"{len(there) + 1}.0.0")
    else:
        package.pull(store, store.resolve(there[0]).digest, folder)
    return {"seconds": time.monotonic() - began, "idle": idle, "peak": status_mib("VmHWM")}


def child(direction: str, repository: str, folder: Path) -> dict[str, float]:
    """`transfer` in a fresh process."""
    command = [sys.executable, "-m", "tests.proofs.bench.registry", "--transfer", direction, repository, str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def skopeo(source: str, target: str) -> float:
    """Seconds of one copy."""
    options = ["--quiet", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false"]
    began = time.monotonic()
    subprocess.run(["skopeo", "copy", *options, source, target], check=True)
    return time.monotonic() - began


def rounds(folder: Path, registry: DockerRegistry, count: int) -> list[dict[str, float]]:
    """What each round came to, in seconds and MiB."""
    from model_registry import package
    from model_registry.oci import reference
    from model_registry.stores import open_store

    package.push(open_store(reference.parse(f"oci:{folder}/layout")), folder / "package", "model", "1.0.0")
    found = []
    for number in range(count):
        own, other = (f"{registry.address}/bench/{name}{number}" for name in ("own", "skopeo"))
        forget(registry)
        pushed = child("push", own, folder / "package")
        pulled = child("pull", own, folder / "pulled")
        shutil.rmtree(folder / "pulled")
        forget(registry)
        skopeo_push = skopeo(f"oci:{folder}/layout:1.0.0", f"docker://{other}:1.0.0")
        skopeo_pull = skopeo(f"docker://{other}:1.0.0", f"oci:{folder}/copied:1.0.0")
        shutil.rmtree(folder / "copied")
        seconds = {"push": pushed["seconds"], "pull": pulled["seconds"]}
        more = max(pushed["peak"] - pushed["idle"], pulled["peak"] - pulled["idle"])
        found.append({**seconds, "skopeo_push": skopeo_push, "skopeo_pull": skopeo_pull, "memory": more})
        print(f"round {number + 1}: {found[-1]}", file=sys.stderr)
    return found


def forget(registry: DockerRegistry) -> None:
    """Empty the registry, so that every push sends everything."""
    registry.kill()
    shutil.rmtree(registry.folder / "content", ignore_errors=True)
    os.sync()
    registry.start()


def summary(found: list[dict[str, float]], mebibytes: int) -> dict[str, Any]:
    """Rates in MiB a second as medians with their spread, and the ratios to skopeo."""
    ways = ("push", "pull", "skopeo_push", "skopeo_pull")
    rates = spread([{way: round(mebibytes / one[way], 1) for way in ways} for one in found])
    ratios = {key: round(statistics.median(one[f"skopeo_{key}"] / one[key] for one in found), 2) for key in ("push", "pull")}
    memory_mib = round(max(one["memory"] for one in found), 1)
    return {"mebibytes": mebibytes, "mib_per_s": rates, "of_skopeo": ratios, "memory_mib": memory_mib}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.bench.registry")
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--transfer", nargs=3, metavar=("DIRECTION", "REPOSITORY", "DIR"), help="one transfer, for the others")
    options = parser.parse_args()
    if options.transfer:
        direction, repository, folder = options.transfer
        print(json.dumps(transfer(direction, repository, Path(folder))))
        return 0
    with tempfile.TemporaryDirectory(prefix="scorestream-bench-") as name:
        folder = Path(name)
        (folder / "package").mkdir()
        with (folder / "package" / "model.onnx").open("wb") as model:
            for _ in range(options.mebibytes):
                model.write(os.urandom(CHUNK))
        with running(DockerRegistry(folder / "registry")) as registry:
            found = summary(rounds(folder, registry, options.rounds), options.mebibytes)
    print(json.dumps(found) if options.json else "\n".join(f"{key}: {value}" for key, value in found.items()))
    return int(found["memory_mib"] > MOST_MEMORY or min(found["of_skopeo"].values()) < LEAST_RATE)


if __name__ == "__main__":
    sys.exit(main())
