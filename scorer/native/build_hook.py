"""Hatchling build hook that compiles the native part into the wheel, or next to its source in an editable installation.

The compiler is `cc`. If `cc` does not work, ziglang is used and becomes a build requirement. Without a compiler, a warning is
printed, and the package is pure Python. `SCORESTREAM_NATIVE=0` disables the compilation.
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
    """Load compiler.py from its file, because it cannot be imported as part of a package during a build."""
    spec = importlib.util.spec_from_file_location("scorestream_compiler", Path(__file__).with_name("compiler.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiler = _compiler()


class ScannerHook(BuildHookInterface[Any]):
    """Build hook that compiles the C sources to the shared object."""

    def dependencies(self) -> list[str]:
        """Return ziglang as a build requirement if no C compiler works and ziglang has a wheel for this machine."""
        has_wheel = sys.platform in ("linux", "darwin") and platform.machine() in ZIG_MACHINES
        return [ZIG] if has_wheel and not compiler.switched_off() and not compiler.has_c_compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the shared object, add it to the wheel, and set the wheel's platform tag."""
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
        """Remove the temporary shared object after the wheel is written."""
        self._folder.cleanup()
