"""The jars of Apache Kafka for the embedded broker, from the user's disk or Maven, checked against their hashes.

`broker_jars.txt` lists the jars (SHA-256, bytes, coordinates). Each jar is taken from the folder `scorestream/maven` in the
user's cache or from the local Maven repository. The Maven client jgo downloads missing jars from Maven Central or from the
mirror in `~/.m2/settings.xml`. Proxies and `~/.netrc` work as for every program that uses requests. A file with the paths of
all jars speeds up later starts.
"""

import fcntl
import hashlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from threading import Lock

from platformdirs import user_cache_path

from model_registry.extras import install_command
from publisher.errors import Fatal

INSTALL = install_command("demo")
WAY_OUT = "use your own broker with --bootstrap-servers HOST:PORT, or set a reachable mirror in ~/.m2/settings.xml"
DOWNLOADS_AT_A_TIME = 4
TIMEOUT_SECONDS = 20

OnProgress = Callable[[str, int, int], None]
"""Called during a download with the jar, its downloaded bytes and its total bytes.

The calls come from several threads, one call at a time.
"""


class BrokerUnavailable(Fatal):
    """Raised if the embedded broker cannot be started. The message is one line with a remedy."""


@dataclass(frozen=True)
class Jar:
    """A jar in the list `broker_jars.txt`; `size` is in bytes."""

    sha256: str
    size: int
    group: str
    artifact: str
    version: str

    @property
    def name(self) -> str:
        """The file name of the jar."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> Path:
        """The path of the jar relative to the root of a Maven repository."""
        return Path(*self.group.split("."), self.artifact, self.version, self.name)

    def is_at(self, path: Path) -> bool:
        """Return True if the file at `path` is this jar, by size and hash."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


def jar_list(text: str | None = None) -> tuple[Jar, ...]:
    """Return the jars of the list `text`, by default those of the embedded broker."""
    text = text or files("scorer.demo").joinpath("broker_jars.txt").read_text()
    return tuple(
        Jar(sha256, int(size), *coordinates.split(":")) for sha256, size, coordinates in map(str.split, text.splitlines())
    )


def maven_central_url(settings: str, default: str) -> str:
    """Return the URL of Maven Central: its first mirror in a Maven settings.xml, else `default`. Raises ParseError.

    `mirrorOf` is a comma-separated list of ids, `*`, `external:*` and exclusions such as `!central`.
    """
    for mirror in ElementTree.fromstring(settings).iterfind(".//{*}mirrors/{*}mirror"):
        url = (mirror.findtext("{*}url") or "").strip()
        patterns = {pattern.strip() for pattern in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        if url and patterns & {"*", "external:*", "central"} and "!central" not in patterns:
            return url.rstrip("/")
    return default


@dataclass(frozen=True)
class JarSources:
    """The sources of jars: a cache that is written, local folders that are only read, and remote URLs by name."""

    cache: Path
    local: tuple[Path, ...]
    remote: Mapping[str, str]


def user_sources() -> JarSources:
    """Return the user's sources of jars. Raises BrokerUnavailable if jgo is not installed or settings.xml cannot be read."""
    try:
        from jgo.config import GlobalSettings
        from jgo.constants import MAVEN_CENTRAL_URL
    except ImportError:
        raise BrokerUnavailable(f"the embedded Kafka needs the extra 'demo': {INSTALL}", exit_code=2) from None
    user = GlobalSettings.load()
    path = Path.home() / ".m2" / "settings.xml"
    try:
        address = maven_central_url(path.read_text(), MAVEN_CENTRAL_URL) if path.is_file() else MAVEN_CENTRAL_URL
    except (OSError, ElementTree.ParseError) as error:
        raise BrokerUnavailable(f"{path} cannot be read: {error}; correct it, or {WAY_OUT}", exit_code=2) from error
    return JarSources(user_cache_path("scorestream") / "maven", (user.repo_cache,), {"central": address} | user.repositories)


def classpath(
    sources: JarSources | None = None, on_progress: OnProgress = lambda *_: None, jars: tuple[Jar, ...] = ()
) -> tuple[Path, ...]:
    """Return the paths of the jars, by default those of the embedded broker; download the missing ones.

    Raises:
        BrokerUnavailable: If a jar is not on this machine and cannot be downloaded.
    """
    sources = sources or user_sources()
    jars = jars or jar_list()
    note = sources.cache / f"{hashlib.sha256(repr(jars).encode()).hexdigest()[:16]}.found"
    if paths := _noted(note, jars):
        return paths
    sources.cache.mkdir(parents=True, exist_ok=True)
    with (sources.cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent first starts download once
        paths = _noted(note, jars) or _gather(jars, sources, on_progress)
        note.write_text("\n".join(str(path) for path in paths))
        return paths


def _noted(note: Path, jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Return the jar paths that an earlier start wrote to the file `note`.

    Returns:
        The paths of `jars`. The result is empty if the file does not list all of them, or if a listed file is missing or has
            another size than the jar.
    """
    if not note.is_file():
        return ()
    paths = tuple(Path(line) for line in note.read_text().splitlines())
    valid = len(paths) == len(jars) and all(
        path.is_file() and path.stat().st_size == jar.size for path, jar in zip(paths, jars, strict=True)
    )
    return paths if valid else ()


def _gather(jars: Sequence[Jar], sources: JarSources, on_progress: OnProgress) -> tuple[Path, ...]:
    places = (sources.cache, *sources.local)
    paths = {jar: path for jar in jars for place in places if jar.is_at(path := place / jar.path)}
    missing = [jar for jar in jars if jar not in paths]
    if missing:
        paths |= _download(missing, sources, on_progress)
    return tuple(paths[jar] for jar in jars)


def _download(jars: Sequence[Jar], sources: JarSources, on_progress: OnProgress) -> dict[Jar, Path]:
    from jgo.maven import MavenContext, PythonResolver

    def fetch(jar: Jar) -> Path:
        target = sources.cache / jar.path
        target.unlink(missing_ok=True)  # the rest of an interrupted download
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        component.artifact().resolve()
        if not jar.is_at(target):
            target.unlink(missing_ok=True)
            raise RuntimeError(f"{jar.name} is not the published file: its SHA-256 is not {jar.sha256}")
        return target

    context = MavenContext(
        resolver=PythonResolver(progress_callback=_progress_of_all(sum(jar.size for jar in jars), on_progress)),
        repo_cache=sources.cache,
        local_repos=[],
        remote_repos=dict(sources.remote),
        timeout=TIMEOUT_SECONDS,
    )
    pool = ThreadPoolExecutor(DOWNLOADS_AT_A_TIME)
    try:
        return dict(zip(jars, pool.map(fetch, jars), strict=True))
    except (OSError, RuntimeError) as error:  # exceptions of requests are OSErrors
        raise BrokerUnavailable(
            f"no embedded Kafka: its jars are not in {sources.cache} and cannot be downloaded ({_reason(error)}); {WAY_OUT}"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _progress_of_all(
    total: int, on_progress: OnProgress
) -> Callable[[str, int], AbstractContextManager[Callable[[int], None]]]:
    """Return a progress callback for jgo. It adds up the bytes of all downloads and reports the sum to `on_progress`."""
    done = 0
    lock = Lock()

    @contextmanager
    def follow(name: str, _size: int) -> Iterator[Callable[[int], None]]:
        def add(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                on_progress(name, done, total)

        yield add

    return follow


def _reason(error: BaseException) -> str:
    """Return the message of the original cause of an error, in one line of at most 160 characters."""
    while error.__context__ is not None:
        error = error.__context__
    return " ".join(str(error).split())[:160]
