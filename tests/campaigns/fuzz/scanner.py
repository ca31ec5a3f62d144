"""The native scanner under the sanitizers of the C compiler: `fuzz_scanner.c`, built and run."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scorer.events.native.compiler import HERE, SOURCES

DRIVER = Path(__file__).with_name("fuzz_scanner.c")
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SHOWN = 4_000  # characters of a report


class NoSanitizers(Exception):
    """The compiler has no sanitizers, or does not compile; the message is the compiler's."""


class Found(Exception):
    """A sanitizer or a check ended the scanner; the message is the report."""


def built(folder: Path, sources: Path = HERE) -> Path:
    """The program, with the scanner of these sources. Raises NoSanitizers."""
    program = folder / "fuzz_scanner"
    files = [DRIVER, *(sources / file.name for file in SOURCES)]
    command = ["cc", *FLAGS, "-I", str(sources), "-o", str(program), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoSanitizers(done.stderr[:SHOWN])
    return program


def run(program: Path, seed: int, seconds: int) -> dict[str, int]:
    """How many events were scanned, and how many of them were certain. Raises Found."""
    done = subprocess.run([str(program), str(seed), str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Found(f"seed {seed}: exit code {done.returncode}\n{done.stderr[:SHOWN]}")
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def main(seed: int, minutes: float) -> int:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            print(json.dumps(run(built(Path(folder)), seed, round(minutes * 60))))
        except (NoSanitizers, Found) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, Found) else 2
    return 0
