"""Build and run the native part under the sanitizers of the C compiler: the files `fuzz_*.c`."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scorer.native.compiler import HERE

PROGRAMS = {
    "scanner": ("scanner.c", "fields.c"),
    "source_positions": (),
    "librdkafka": ("clients.c",),
    "key_index": ("hash.c",),
    "feature_rows": (),
}
"""The sources of each program beside `fuzz_NAME.c`, which may include more."""
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SHOWN = 4_000  # characters of a report


class NoSanitizers(Exception):
    """The compiler has no sanitizers, or does not compile; the message is the compiler's."""


class Found(Exception):
    """A sanitizer or a check ended the program; the message is the report."""


def built(name: str, folder: Path, sources: Path = HERE) -> Path:
    """Compile the program of this name with these sources. Raises NoSanitizers."""
    program = folder / f"fuzz_{name}"
    files = [Path(__file__).with_name(f"fuzz_{name}.c"), *(sources / file for file in PROGRAMS[name])]
    command = ["cc", *FLAGS, "-I", str(sources), "-o", str(program), *map(str, files)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise NoSanitizers(completed.stderr[:SHOWN])
    return program


def run(program: Path, seed: int, seconds: int) -> dict[str, int]:
    """Run the program, and return its counts. Raises Found."""
    completed = subprocess.run([str(program), str(seed), str(seconds)], capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise Found(f"seed {seed}: exit code {completed.returncode}\n{completed.stderr[:SHOWN]}")
    counts: dict[str, int] = json.loads(completed.stdout)
    return counts


def main(seed: int, minutes: float) -> int:
    """Run each program for an equal share of the time, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for name in PROGRAMS:
            try:
                print(json.dumps(run(built(name, Path(folder)), seed, round(minutes * 60 / len(PROGRAMS)))))
            except (NoSanitizers, Found) as error:
                print(error, file=sys.stderr)
                return 1 if isinstance(error, Found) else 2
    return 0
