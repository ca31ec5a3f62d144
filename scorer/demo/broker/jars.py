"""The jars of Apache Kafka for the embedded broker: found, else downloaded, and always checked against their hashes.

`broker_jars.txt` lists them (SHA-256, bytes, coordinates). They are looked for in this user's cache
(`<user cache>/scorestream/maven`), then in the user's local Maven repository, then fetched by jgo from Maven Central or from
the mirror that the user's own `~/.m2/settings.xml` names. Proxies and `~/.netrc` hold as for every requests-based program.
A note of where all were found lets later starts skip all of this.
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
WAY_OUT = "use a broker of your own with --bootstrap-servers HOST:PORT, or name a reachable mirror in ~/.m2/settings.xml"
DOWNLOADS_AT_A_TIME = 4
TIMEOUT_SECONDS = 20

OnProgress = Callable[[str, int, int], None]
"""Called during a download only, from several threads, one at a time: (jar, bytes so far of all jars, bytes of all jars)."""


class BrokerUnavailable(Fatal):
    """No embedded broker can be had. The message is one line with the way out."""


@dataclass(frozen=True)
class Jar:
    """One line of the list. `size` in bytes."""

    sha256: str
    size: int
    group: str
    artifact: str
    version: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> Path:
        return Path(*self.group.split("."), self.artifact, self.version, self.name)

    def is_at(self, path: Path) -> bool:
        """Whether this very jar is there: size, then hash."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


def jar_list(text: str | None = None) -> tuple[Jar, ...]:
    """All jars of the broker, as pinned; or those of another list's text."""
    text = text or files("scorer.demo").joinpath("broker_jars.txt").read_text()
    return tuple(
        Jar(sha256, int(size), *coordinates.split(":")) for sha256, size, coordinates in map(str.split, text.splitlines())
    )


def central(settings: str, default: str) -> str:
    """The address to use for Maven Central: the first mirror for it in a Maven settings.xml, else `default`. `mirrorOf` is a
    comma-separated list of ids, `*`, `external:*` and exclusions such as `!central`. Raises ParseError."""
    for mirror in ElementTree.fromstring(settings).iterfind(".//{*}mirrors/{*}mirror"):
        url = (mirror.findtext("{*}url") or "").strip()
        of = {pattern.strip() for pattern in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        if url and of & {"*", "external:*", "central"} and "!central" not in of:
            return url.rstrip("/")
    return default


@dataclass(frozen=True)
class JarSources:
    """Where jars come from: `cache` is written, `local` are only read, `remote` are addresses by name."""

    cache: Path
    local: tuple[Path, ...]
    remote: Mapping[str, str]


def user_sources() -> JarSources:
    """This user's own. Raises BrokerUnavailable where jgo is not installed or settings.xml cannot be read."""
    try:
        from jgo.config import GlobalSettings
        from jgo.constants import MAVEN_CENTRAL_URL
    except ImportError:
        raise BrokerUnavailable(f"the embedded Kafka needs the extra 'demo': {INSTALL}", exit_code=2) from None
    user = GlobalSettings.load()
    path = Path.home() / ".m2" / "settings.xml"
    try:
        address = central(path.read_text(), MAVEN_CENTRAL_URL) if path.is_file() else MAVEN_CENTRAL_URL
    except (OSError, ElementTree.ParseError) as error:
        raise BrokerUnavailable(f"{path} cannot be read: {error}; mend it, or {WAY_OUT}", exit_code=2) from error
    return JarSources(user_cache_path("scorestream") / "maven", (user.repo_cache,), {"central": address} | user.repositories)


def classpath(
    sources: JarSources | None = None, on_progress: OnProgress = lambda *_: None, jars: tuple[Jar, ...] = ()
) -> tuple[Path, ...]:
    """The paths of all jars (the broker's where no others are named), downloaded where they are missing. Raises
    BrokerUnavailable with one line where they can neither be found nor downloaded."""
    sources = sources or user_sources()
    jars = jars or jar_list()
    note = sources.cache / f"{hashlib.sha256(repr(jars).encode()).hexdigest()[:16]}.found"
    if known := _noted(note, jars):
        return known
    sources.cache.mkdir(parents=True, exist_ok=True)
    with (sources.cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two first starts at once download once
        found = _noted(note, jars) or _gather(jars, sources, on_progress)
        note.write_text("\n".join(str(path) for path in found))
        return found


def _noted(note: Path, jars: Sequence[Jar]) -> tuple[Path, ...]:
    """The paths that an earlier start noted, if all are still there in their right size; else nothing."""
    if not note.is_file():
        return ()
    paths = tuple(Path(line) for line in note.read_text().splitlines())
    right = len(paths) == len(jars) and all(
        path.is_file() and path.stat().st_size == jar.size for path, jar in zip(paths, jars, strict=True)
    )
    return paths if right else ()


def _gather(jars: Sequence[Jar], sources: JarSources, on_progress: OnProgress) -> tuple[Path, ...]:
    places = (sources.cache, *sources.local)
    found = {jar: path for jar in jars for place in places if jar.is_at(path := place / jar.path)}
    missing = [jar for jar in jars if jar not in found]
    if missing:
        found |= _download(missing, sources, on_progress)
    return tuple(found[jar] for jar in jars)


def _download(jars: Sequence[Jar], sources: JarSources, on_progress: OnProgress) -> dict[Jar, Path]:
    from jgo.maven import MavenContext, PythonResolver

    def fetch(jar: Jar) -> Path:
        target = sources.cache / jar.path
        target.unlink(missing_ok=True)  # what is left of a download that was cut off
        component = context.project(jar.group, jar.artifact).at_version(jar.version)
        component.artifact().resolve()
        if not jar.is_at(target):
            target.unlink(missing_ok=True)
            raise RuntimeError(f"{jar.name} is not the file that was published: its SHA-256 is not {jar.sha256}")
        return target

    context = MavenContext(
        resolver=PythonResolver(progress_callback=_following(sum(jar.size for jar in jars), on_progress)),
        repo_cache=sources.cache,
        local_repos=[],
        remote_repos=dict(sources.remote),
        timeout=TIMEOUT_SECONDS,
    )
    pool = ThreadPoolExecutor(DOWNLOADS_AT_A_TIME)
    try:
        return dict(zip(jars, pool.map(fetch, jars), strict=True))
    except (OSError, RuntimeError) as error:  # what requests raises is an OSError
        raise BrokerUnavailable(
            f"no embedded Kafka: its jars are not in {sources.cache} and cannot be downloaded ({_reason(error)}); {WAY_OUT}"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _following(total: int, on_progress: OnProgress) -> Callable[[str, int], AbstractContextManager[Callable[[int], None]]]:
    """What jgo tells of each file that it fetches, as the bytes of all of them so far; files come at the same time."""
    done, one = 0, Lock()

    @contextmanager
    def follow(name: str, _size: int) -> Iterator[Callable[[int], None]]:
        def add(count: int) -> None:
            nonlocal done
            with one:
                done += count
                on_progress(name, done, total)

        yield add

    return follow


def _reason(error: BaseException) -> str:
    """The innermost words of an error, in one line of at most 160 characters."""
    while error.__context__ is not None:
        error = error.__context__
    return " ".join(str(error).split())[:160]
