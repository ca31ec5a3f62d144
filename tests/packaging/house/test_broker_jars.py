"""The sources of the embedded broker's jars: cache, local repository, mirror, and the error if there are none."""

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scorer.demo.broker import jars as broker_jars
from scorer.demo.broker.jars import BrokerUnavailable, Jar, JarSources, classpath, maven_central_url

CENTRAL = "https://central.example/maven2"
CONTENTS = {"one": b"first jar", "two": b"the second jar"}


@pytest.fixture
def jars(monkeypatch: pytest.MonkeyPatch) -> tuple[Jar, ...]:
    pair = tuple(
        Jar(hashlib.sha256(content).hexdigest(), len(content), "org.example", name, "1.0") for name, content in CONTENTS.items()
    )
    monkeypatch.setattr(broker_jars, "jar_list", lambda: pair)
    return pair


def fill(repository: Path, jars: tuple[Jar, ...]) -> Path:
    for jar in jars:
        (repository / jar.path).parent.mkdir(parents=True, exist_ok=True)
        (repository / jar.path).write_bytes(CONTENTS[jar.artifact])
    return repository


@pytest.fixture
def mirror(tmp_path: Path, jars: tuple[Jar, ...]) -> Iterator[str]:
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    folder = fill(tmp_path / "mirror", jars)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def sources(tmp_path: Path, remote: str = "http://127.0.0.1:1", local: tuple[Path, ...] = ()) -> JarSources:
    return JarSources(tmp_path / "cache", local, {"central": remote})


def test_without_cache_and_network_one_line_has_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="--bootstrap-servers") as caught:
        classpath(sources(tmp_path))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "cache") in str(caught.value)


def test_jars_are_downloaded_once_with_progress(tmp_path: Path, jars: tuple[Jar, ...], mirror: str) -> None:
    steps: list[tuple[str, int, int]] = []
    paths = classpath(sources(tmp_path, mirror), lambda *step: steps.append(step))
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    total = sum(jar.size for jar in jars)
    assert steps[-1][1:] == (total, total)
    assert {name for name, _, _ in steps} == {jar.name for jar in jars}
    assert classpath(sources(tmp_path)) == paths  # without a network


def test_local_jars_need_no_network(tmp_path: Path, jars: tuple[Jar, ...]) -> None:
    local = fill(tmp_path / "m2", jars)
    assert classpath(sources(tmp_path, local=(local,))) == tuple(local / jar.path for jar in jars)
    assert not list((tmp_path / "cache").rglob("*.jar"))
    seeded = fill(tmp_path / "other" / "cache", jars)
    assert classpath(sources(tmp_path / "other")) == tuple(seeded / jar.path for jar in jars)


@pytest.mark.parametrize("content", [b"first", b"wrong jar", b""])
def test_a_damaged_jar_is_downloaded_again(tmp_path: Path, jars: tuple[Jar, ...], mirror: str, content: bytes) -> None:
    cache = fill(tmp_path / "cache", jars)
    (cache / jars[0].path).write_bytes(content)
    assert [path.read_bytes() for path in classpath(sources(tmp_path, mirror))] == list(CONTENTS.values())


def test_a_jar_that_was_removed_after_the_check_is_downloaded_again(tmp_path: Path, mirror: str) -> None:
    first = classpath(sources(tmp_path, mirror))
    first[1].unlink()
    assert classpath(sources(tmp_path, mirror)) == first
    assert first[1].is_file()


def test_a_jar_with_other_bytes_is_rejected_and_not_stored(tmp_path: Path, jars: tuple[Jar, ...], mirror: str) -> None:
    (tmp_path / "mirror" / jars[0].path).write_bytes(b"not this!")
    with pytest.raises(BrokerUnavailable, match="SHA-256"):
        classpath(sources(tmp_path, mirror))
    assert not (tmp_path / "cache" / jars[0].path).exists()


SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>
<mirror><id>other</id><mirrorOf>elsewhere</mirrorOf><url>https://other.example</url></mirror>
<mirror><id>ours</id><mirrorOf>{of}</mirrorOf><url> https://mirror.example/maven/ </url></mirror></mirrors></settings>"""


REPLACES_CENTRAL = {"*": True, "central": True, "external:*": True, "elsewhere, central": True, "*,!thirdparty": True}
REPLACES_CENTRAL |= {"elsewhere": False, "*,!central": False, "central-snapshots": False, "": False}


@pytest.mark.parametrize("of", REPLACES_CENTRAL)
def test_the_users_mirror_replaces_the_repositories_that_it_names(of: str) -> None:
    text = SETTINGS.format(of=of)
    assert maven_central_url(text, CENTRAL) == ("https://mirror.example/maven" if REPLACES_CENTRAL[of] else CENTRAL)
    assert (
        maven_central_url(text.replace(' xmlns="http://maven.apache.org/SETTINGS/1.2.0"', ""), CENTRAL) != CENTRAL
    ) is REPLACES_CENTRAL[of]


def test_the_users_settings_are_read_or_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of="central"))
    assert broker_jars.user_sources().remote["central"] == "https://mirror.example/maven"
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    with pytest.raises(BrokerUnavailable, match=r"settings\.xml cannot be read"):
        broker_jars.user_sources()
