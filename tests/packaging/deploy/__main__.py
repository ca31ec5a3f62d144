"""`python -m tests deploy`: render the manifests with kustomize, hold them against those kept here, and let kube-score
judge them.

Needs Go, once, for some two minutes. `--write` keeps what was rendered.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.packaging.deploy.manifests import CLUSTERS, DIGEST, OVERLAYS, RENDERED, SOURCES, TRAINING, digest_of, file_of, lines
from tests.support.golang import program

PROGRAMS = ("sigs.k8s.io/kustomize/kustomize/v5@v5.7.1", "github.com/zegl/kube-score/cmd/kube-score@v1.20.0")


def main() -> int:
    """Exit code 0 where everything is as kept and without criticals, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests deploy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what was rendered")
    write = parser.parse_args().write
    kustomize, kube_score = map(program, PROGRAMS)
    RENDERED.mkdir(exist_ok=True)
    stale, judged = [], []
    for name in (*OVERLAYS, *TRAINING, *CLUSTERS):
        text = output(kustomize, "build", str(SOURCES / name))
        if write:
            file_of(name).write_text(lines(text))
        elif not file_of(name).exists() or file_of(name).read_text() != lines(text):
            stale.append(name)
        if name not in CLUSTERS and not scored(kube_score, name, text):
            judged.append(name)
    if write:
        DIGEST.write_text(digest_of(SOURCES) + "\n")
    for name in stale:
        print(f"{name}: the kept manifests are not those of today: python -m tests deploy --write")
    print(f"{len(OVERLAYS) + len(TRAINING) + len(CLUSTERS)} rendered, {len(stale)} stale, {len(judged)} with criticals")
    return 1 if stale or judged else 0


def scored(judge: Path, name: str, text: str) -> bool:
    """Whether kube-score finds nothing critical; prints what it finds."""
    done = subprocess.run(
        [judge, "score", "-", "--output-format", "ci"], input=text, capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if not line.startswith(("[OK]", "[SKIPPED]")):
            print(f"{name}: {line}")
    return done.returncode == 0


def output(command: Path, *arguments: str) -> str:
    return subprocess.run([command, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
