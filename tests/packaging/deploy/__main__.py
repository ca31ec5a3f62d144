"""`python -m tests deploy`: run kube-score on the examples of the chart, and render Strimzi topics and users with kustomize.

The first run builds kustomize and kube-score with Go, which takes two minutes. `--write` stores the topics and users.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import yaml

from tests.packaging.deploy.manifests import (
    CLUSTERS,
    DIGEST,
    EXAMPLES,
    KAFKA,
    RENDERED,
    SOURCES,
    TRAINING,
    digest_of,
    file_of,
    lines,
    rendered,
)
from tests.support.golang import program

PROGRAMS = ("sigs.k8s.io/kustomize/kustomize/v5@v5.7.1", "github.com/zegl/kube-score/cmd/kube-score@v1.20.0")

IGNORED = ("--ignore-test", "container-image-pull-policy")
"""kube-score demands that images are pulled `Always`, with which a pod cannot restart while the registry is unavailable."""


def main() -> int:
    """Return 0 if the stored objects are current and kube-score finds nothing critical, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests deploy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the rendered topics and users")
    write = parser.parse_args().write
    kustomize, kube_score = map(program, PROGRAMS)
    RENDERED.mkdir(exist_ok=True)
    stale = []
    for name in CLUSTERS:
        text = output(kustomize, "build", str(SOURCES / name))
        if write:
            file_of(name).write_text(lines(text))
        elif not file_of(name).exists() or file_of(name).read_text() != lines(text):
            stale.append(name)
    if write:
        DIGEST.write_text(digest_of(KAFKA) + "\n")
    criticals = [name for name in (*EXAMPLES, *TRAINING) if not scored(kube_score, name, yaml.safe_dump_all(rendered(name)))]
    for name in stale:
        print(f"{name}: the stored objects are not current: python -m tests deploy --write")
    print(
        f"{len(CLUSTERS)} stored, {len(stale)} stale; {len(EXAMPLES) + len(TRAINING)} examples, {len(criticals)} with criticals"
    )
    return 1 if stale or criticals else 0


def scored(judge: Path, name: str, text: str) -> bool:
    """Print the findings of kube-score, and return whether none is critical."""
    completed = subprocess.run(
        [judge, "score", "-", "--output-format", "ci", *IGNORED], input=text, capture_output=True, text=True, check=False
    )
    for line in completed.stdout.splitlines():
        if not line.startswith(("[OK]", "[SKIPPED]")):
            print(f"{name}: {line}")
    return completed.returncode == 0


def output(command: Path, *arguments: str) -> str:
    return subprocess.run([command, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
