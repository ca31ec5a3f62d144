"""The tracked files: the agreed top level, no paths of a developer's machine, and pinned requirements."""

import ast
import importlib.metadata
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scorer.demo.broker.jars import jar_list
from tests.benchmarks.brokers.__main__ import LISTS, VERSIONS
from tests.support.environment import ROOT

PACKAGES = {"scorer", "publisher", "model_registry"}
"""The first two must not depend on each other; both may depend on the last."""
PAGES = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
TOP = {"pyproject.toml", "LICENSE", *PAGES, *PACKAGES, "deploy", "tests", "Dockerfile"}
DOT_FILES = {".ci", ".dockerignore", ".gitignore", ".pre-commit-config.yaml"}
HOMES = re.compile(rb"(?<![\w.~}>-])/(?:work|root|home/\w+|Users/\w+)/")
"""A path that exists only on the machine of a developer."""
REQUIREMENTS = ("cpu", "gpu", "training", "network", "test", "gpu-test", "sbom", "compiler")
INDEXES = re.compile(r"^\s*(?:--(?:extra-)?index-url|--find-links|-i|-f)\b|https?://", re.MULTILINE)


def tracked() -> list[Path]:
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [Path(name.decode()) for name in output.split(b"\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


def machine_paths(content: bytes) -> list[bytes]:
    return [match.group() for match in HOMES.finditer(content)]


def test_the_top_level_has_only_the_agreed_entries() -> None:
    assert {path.parts[0] for path in tracked()} == TOP | DOT_FILES


def test_nothing_names_a_machine() -> None:
    violations = {str(path): paths for path in tracked() if (paths := machine_paths((ROOT / path).read_bytes()))}
    assert violations == {}


@pytest.mark.parametrize("home", ["work", "root", "home/ann", "Users/ann"])
def test_a_machine_path_is_reported(home: str) -> None:
    assert machine_paths(f'cache = "/{home}/x"'.encode())
    assert not machine_paths(f"a frame{home}/x, ./{home}/x and https://example.org/a/b".encode())


def test_imported_packages_are_declared() -> None:
    """A package that is only a dependency of another package can disappear with its next version."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, build = document["project"], document["build-system"]["requires"]  # the build hook imports its backend
    stated = [*build, *project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower() for requirement in stated}
    ours = {"scorer", "publisher", "model_registry"}
    sources = [path for path in tracked() if path.parts[0] in ours and path.suffix == ".py"]
    imported = set(itertools.chain.from_iterable(modules((ROOT / path).read_bytes()) for path in sources))
    distributions = importlib.metadata.packages_distributions()
    names = {module: {name.lower().replace("_", "-") for name in distributions.get(module, [])} for module in imported}
    own_modules = ours | sys.stdlib_module_names
    assert {module for module in imported - own_modules if names[module] and not names[module] & declared} == set()


def modules(source: bytes) -> Iterator[str]:
    """Yield the top-level modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_requirements_are_pinned_and_hashed_and_name_no_index(name: str) -> None:
    content = (ROOT / "deploy" / "requirements" / f"{name}.txt").read_text()
    entries = re.findall(r"^[a-z0-9].*(?:\n    --hash=.*)*", content, re.MULTILINE)
    assert len(entries) > (0 if name == "compiler" else 20)
    loose = [entry for entry in entries if "==" not in entry.splitlines()[0] or "--hash=sha256:" not in entry]
    assert loose == []
    assert INDEXES.findall(content) == []


def test_the_exclusive_extras_have_separate_files() -> None:
    cpu, gpu = (((ROOT / "deploy" / "requirements" / name).read_text()) for name in ("cpu.txt", "gpu.txt"))
    assert re.search(r"^onnxruntime==", cpu, re.MULTILINE)
    assert "onnxruntime-gpu==" not in cpu
    assert re.search(r"^onnxruntime-gpu==", gpu, re.MULTILINE)
    assert not re.search(r"^onnxruntime==", gpu, re.MULTILINE)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_brokers_jars_are_pinned(version: str) -> None:
    jars = jar_list(LISTS[version].read_text()) if version in LISTS else jar_list()
    assert {jar.version for jar in jars if jar.artifact == "kafka_2.13"} == {version}
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size > 0 for jar in jars)
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars)


def test_the_versions_that_pages_name_are_the_tested_ones() -> None:
    page = (ROOT / "tests" / "README.md").read_text().partition("# Versions of Apache Kafka")[2].partition("\n# ")[0]
    assert tuple(re.findall(r"^\| (\d[\d.]+) ", page, re.MULTILINE)) == VERSIONS
    assert f"tested on {VERSIONS[0]} to {VERSIONS[-1]}" in " ".join((ROOT / "README.md").read_text().split())
