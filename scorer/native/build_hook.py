"""Hatchling's hook: compiles the scanner into the wheel, or beside its source in an editable installation.

`cc` where it works; else ziglang, which comes as a build requirement; else the package is pure Python, with a warning.
`SCORESTREAM_NATIVE=0` leaves it out.
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
ZIG_MACHINES = ("x86_64", "aarch64", "arm64")  # those for which ziglang has a wheel wherever pip finds one


def _compiler() -> Any:
    """The module beside this file, which is no part of a package while it is being built."""
    spec = importlib.util.spec_from_file_location("scorestream_compiler", Path(__file__).with_name("compiler.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiler = _compiler()


class ScannerHook(BuildHookInterface[Any]):
    """The scanner's place in a build."""

    def dependencies(self) -> list[str]:
        """A C compiler, where the system has none that works and a wheel of one can be had."""
        known = sys.platform in ("linux", "darwin") and platform.machine() in ZIG_MACHINES
        return [ZIG] if known and not compiler.switched_off() and not compiler.cc_works() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the wheel by what is in it."""
        editable = version == "editable"
        self._folder = tempfile.TemporaryDirectory(prefix="scorestream-")
        target = compiler.OBJECT if editable else Path(self._folder.name, compiler.OBJECT.name)
        try:
            if compiler.switched_off():
                raise compiler.NotCompiled(f"{compiler.SWITCH}=0 leaves it out")
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
        """Remove what the wheel has by now."""
        self._folder.cleanup()
