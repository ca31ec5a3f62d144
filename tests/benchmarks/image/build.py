"""Build the image without a container engine: the base from Debian packages by mmdebstrap, the rest by buildah. Needs root."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from platformdirs import user_cache_path

from tests.support.environment import ROOT

BASE = "localhost/python-base:ci"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
STORAGE = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
"""Works without overlay file systems and user namespaces, so that it works in a container too."""
TRAINING = ("training", "network")
"""The lists of requirements of the training images."""
SUITE = "trixie"
PYTHON_PACKAGES = "python3,python3-venv,ca-certificates"
TRUST = (Path("/etc/ssl/certs"), Path("/etc/pip.conf"))
"""The files with which pip reaches a package index as this machine does; mounted for the RUN steps only."""


def base() -> None:
    """Build the base image, a Debian with Python, unless it exists; its root file system stays in the user's cache."""
    if BASE in _run("buildah", "images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    tar = user_cache_path("scorestream") / "image" / f"{SUITE}.tar"
    if not tar.exists():
        tar.parent.mkdir(parents=True, exist_ok=True)
        unfinished = tar.with_name(f"unfinished-{tar.name}")
        print_progress(f"making {tar} (minutes)")
        _run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PYTHON_PACKAGES}", SUITE, str(unfinished))
        unfinished.rename(tar)
    container = _run("buildah", "from", "scratch").strip()
    try:
        _run("buildah", "add", "--quiet", container, str(tar), "/")
        _run("buildah", "commit", "--quiet", container, BASE)
    finally:
        _run("buildah", "rm", container)


def image(extra: str) -> str:
    """Build the image from the working tree, with one of the lists in deploy/requirements; return its name."""
    name = f"localhost/scorestream:ci-{extra}"
    volumes = [f"--volume={path}:{path}:ro" for path in TRUST if path.exists()]
    revision = _run("git", "rev-parse", "HEAD").strip()
    target = ["--target", "training"] if extra in TRAINING else []
    print_progress(f"building {name}")
    _run(
        "buildah",
        "build",
        "--quiet",
        "--pull-never",
        *volumes,
        "--build-arg",
        f"BASE={BASE}",
        "--build-arg",
        f"EXTRA={extra}",
        "--build-arg",
        f"REVISION={revision}",
        "--build-arg",
        f"VERSION={VERSION}",
        "--tag",
        name,
        *target,
        ".",
    )
    return name


def bytes_of(name: str) -> int:
    return int(_run("podman", "image", "inspect", "--format", "{{.Size}}", name))


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(*command: str) -> str:
    completed = subprocess.run(command, cwd=ROOT, env=os.environ | STORAGE, stdout=subprocess.PIPE, text=True, check=True)
    return completed.stdout
