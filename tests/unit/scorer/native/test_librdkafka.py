"""The plugin is used with the librdkafka that it was written for, and refused with another version or layout."""

import ctypes
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import cimpl

from scorer.native.compiler import OBJECT
from scorer.native.librdkafka import POINTER, declare_functions, exported, format_version, load_plugin

pytestmark = pytest.mark.debian("cc")
MESSAGE_BYTES = 72  # of rd_kafka_message_t
OnDelivery = ctypes.CFUNCTYPE(None, POINTER, POINTER, POINTER)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a copy of the shared object, so that functions bound in it are not those of this process."""
    return str(shutil.copy(OBJECT, tmp_path / "copy.so"))


@pytest.fixture
def functions() -> dict[str, Any]:
    return exported(Path(cimpl.__file__))


def version(number: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int)(lambda: number)


def altered_reports(set_callback: Any, form: str, offset: int, value: int) -> Any:
    """Return a `rd_kafka_conf_set_dr_msg_cb` whose messages have another value at an offset."""
    callbacks: list[Any] = []

    def set_altered(settings: int, address: int) -> None:
        original = OnDelivery(address)

        def on_delivery(client: int, message: int, opaque: int) -> None:
            copy = ctypes.create_string_buffer(ctypes.string_at(message, MESSAGE_BYTES), MESSAGE_BYTES)
            struct.pack_into(form, copy, offset, value)
            original(client, ctypes.addressof(copy), opaque)

        callbacks.append(OnDelivery(on_delivery))
        ctypes.CFUNCTYPE(None, POINTER, OnDelivery)(ctypes.cast(set_callback, POINTER).value or 0)(settings, callbacks[-1])

    callbacks.append(ctypes.CFUNCTYPE(None, POINTER, POINTER)(set_altered))
    return callbacks[0]


def test_the_installed_librdkafka_is_accepted(path: str) -> None:
    status = load_plugin(path, Path(cimpl.__file__))
    assert status.plugin is not None
    assert "decodes only" not in status.text


@pytest.mark.parametrize("number", [0x020000FF, 0x027F00FF])
def test_each_minor_version_of_the_same_major_is_accepted(path: str, functions: dict[str, Any], number: int) -> None:
    assert load_plugin(path, functions | {"rd_kafka_version": version(number)}).plugin is not None


@pytest.mark.parametrize(("number", "name"), [(0x010902FF, "1.9.2"), (0x030000FF, "3.0.0")])
def test_another_major_version_is_refused(
    path: str, functions: dict[str, Any], caplog: pytest.LogCaptureFixture, number: int, name: str
) -> None:
    status = load_plugin(path, functions | {"rd_kafka_version": version(number)})
    assert status.plugin is None
    assert f"librdkafka {name} is loaded and version 2.x is required" in status.text
    assert "install a confluent-kafka release with librdkafka 2" in status.text
    assert [f"librdkafka {name} is loaded" in record.message for record in caplog.records] == [True]


def test_a_refused_version_binds_nothing(path: str, functions: dict[str, Any]) -> None:
    load_plugin(path, functions | {"rd_kafka_version": version(0x030000FF)})
    bound = (ctypes.c_void_p * len(functions)).in_dll(declare_functions(ctypes.CDLL(path)), "kafka")
    assert set(bound) == {None}


@pytest.mark.parametrize(
    ("field", "form", "offset", "value"),
    [
        ("err", "i", 0, 0),
        ("rkt", "q", 8, 0),
        ("partition", "i", 16, 8),
        ("payload", "q", 24, 0),
        ("len", "q", 32, 8),
        ("key", "q", 40, 0),
        ("key_len", "q", 48, 4),
        ("offset", "q", 56, 0),
    ],
)
def test_another_layout_of_a_message_is_refused(
    path: str, functions: dict[str, Any], field: str, form: str, offset: int, value: int
) -> None:
    set_callback = functions["rd_kafka_conf_set_dr_msg_cb"]
    altered = altered_reports(set_callback, form, offset, value)
    status = load_plugin(path, functions | {"rd_kafka_conf_set_dr_msg_cb": altered})
    assert status.plugin is None
    assert f"are not those of version 2.x (at {field})" in status.text


def test_a_client_that_cannot_be_created_is_refused(path: str, functions: dict[str, Any]) -> None:
    create_no_client = ctypes.CFUNCTYPE(POINTER, ctypes.c_int, POINTER, POINTER, ctypes.c_size_t)(lambda *_: None)
    assert "(at rd_kafka_new)" in load_plugin(path, functions | {"rd_kafka_new": create_no_client}).text


def test_a_library_without_the_functions_is_reported(path: str) -> None:
    status = load_plugin(path, Path(path))
    assert status.plugin is None
    assert "does not export librdkafka's functions" in status.text


def test_a_path_with_a_semicolon_is_reported(functions: dict[str, Any]) -> None:
    assert "must not contain ';'" in load_plugin("/a;b.so", functions).text


def test_a_version_number_is_formatted_by_its_bytes() -> None:
    assert format_version(0x021000FF) == "2.16.0"


def test_every_function_that_python_calls_is_exported() -> None:
    library = ctypes.CDLL(str(OBJECT))
    sources = Path(__file__).parents[4].glob("scorer/**/*.py")
    called_functions = {
        name
        for source in sources
        for name in re.findall(r"\blibrary\.(\w+)\(", source.read_text().replace("_library", "library"))
    }
    assert {"fetcher_collect", "records_write"} <= called_functions
    assert [name for name in sorted(called_functions) if not hasattr(library, name)] == []
