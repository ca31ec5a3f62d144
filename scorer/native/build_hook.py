"""Hatchling build hook: compile the native part into the wheel, or next to its source in an editable installation.

It uses `cc`, else ziglang, which is then a build requirement. Without both the package is pure Python, with a warning.
`SCORESTREAM_NATIVE=0` disables it.
"""

import importlib.util
import platform
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang>=0.13,<0.17"
ZIG_MACHINES = ("x86_64", "aarch64", "arm64")  # ziglang has wheels for these


def _compiler() -> Any:
    """Import compiler.py, which is not part of a package during a build."""
    spec = importlib.util.spec_from_file_location("scorestream_compiler", Path(__file__).with_name("compiler.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiler = _compiler()


class ScannerHook(BuildHookInterface[Any]):
    """Builds the shared object."""

    def dependencies(self) -> list[str]:
        """Require ziglang if the system has no working C compiler and a wheel exists."""
        has_wheel = sys.platform in ("linux", "darwin") and platform.machine() in ZIG_MACHINES
        return [ZIG] if has_wheel and not compiler.switched_off() and not compiler.cc_works() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and set the platform tag of the wheel."""
        editable = version == "editable"
        self._folder = tempfile.TemporaryDirectory(prefix="scorestream-")
        target = compiler.OBJECT if editable else Path(self._folder.name, compiler.OBJECT.name)
        try:
            if compiler.switched_off():
                raise compiler.NotCompiled(f"{compiler.SWITCH}=0 disables it")
            compiler.compile_to(target)
        except compiler.NotCompiled as error:
            target.unlink(missing_ok=True)
            self.app.display_warning(f"scorestream is built without its native scanner, in pure Python: {error}")
            return
        if not editable:
            build_data["force_include"][str(target)] = f"scorer/native/{target.name}"
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the build product after it is in the wheel."""
        self._folder.cleanup()
