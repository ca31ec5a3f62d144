"""What the README says of the registry, done in a real one."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from scorer.demo import flights
from tests.registry.server import DockerRegistry

pytestmark = pytest.mark.debian("docker-registry")

README = (Path(__file__).parents[2] / "README.md").read_text()
HOST = "registry.example.com"
KAFKA = re.compile(r" --kafka \S+( --wait)?")  # followed on the real broker by tests/e2e/test_rollout.py


def test_the_readmes_verbs_work_in_a_registry(registry: DockerRegistry, tmp_path: Path) -> None:
    block = next(block for block in re.findall(r"```sh\n(.*?)```", README, flags=re.S) if HOST in block)
    lines = [line.partition("   #")[0].strip() for line in block.replace("\\\n", " ").splitlines()]
    shutil.copytree(flights.DATA / "flight-delay-1.0.0", tmp_path / "flight-delay-1.3.0")
    shutil.copytree(flights.DATA / "flight-delay-2.0.0", tmp_path / "flight-delay-1.4.0")

    def shell(line: str) -> str:
        ours = KAFKA.sub("", re.sub(r"\s+", " ", line)).replace(HOST, registry.address)
        if " watch " in ours:
            ours += " --since 0 --count 3"
        path = f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"
        done = subprocess.run(
            ["bash", "-c", f"{ours} --plain-http"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": path},
        )
        assert done.returncode == 0, f"{ours}: {done.stderr}"
        return done.stdout

    for line in lines[:1] + lines[2:3]:
        shell(line.replace("1.4.0", "1.3.0"))
    said = {line.split()[1]: shell(line) for line in lines}
    assert set(said) == {"push", "inspect", "promote", "rollback", "status", "watch", "prune"}
    assert "~ model.onnx" in said["inspect"]
    assert "1.3.0 -> 1.4.0 (revision 2)" in said["promote"]
    assert "1.4.0 -> 1.3.0 (revision 3, back to revision 1)" in said["rollback"]
    assert "calibration" in said["status"]
    assert len(said["watch"].splitlines()) == 3
