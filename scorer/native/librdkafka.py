"""Bindings of librdkafka: the functions of `fetch.c` and `produce.c`, and the handles of the Kafka clients.

If the loaded librdkafka is incompatible with the shared object, confluent-kafka itself fetches events and produces records.
"""

# The native part calls the librdkafka that confluent-kafka has loaded, and uses the clients of confluent-kafka. To get the
# handles of these clients, the shared object is loaded as a plugin of librdkafka, which calls each plugin when it creates a
# client.

import ctypes
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import cimpl

from scorer.native.compiler import OBJECT
from scorer.native.load import native_library

FUNCTIONS = (
    "rd_kafka_version",
    "rd_kafka_conf_interceptor_add_on_new",
    "rd_kafka_conf_get",
    "rd_kafka_conf_set_error_cb",
    "rd_kafka_queue_new",
    "rd_kafka_queue_destroy",
    "rd_kafka_queue_get_partition",
    "rd_kafka_queue_forward",
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_destroy",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_leader_epoch",
    "rd_kafka_message_headers",
    "rd_kafka_header_get_all",
    "rd_kafka_topic_name",
    "rd_kafka_topic_new",
    "rd_kafka_topic_destroy",
    "rd_kafka_produceva",
    "rd_kafka_error_destroy",
    "rd_kafka_conf_new",
    "rd_kafka_conf_set",
    "rd_kafka_conf_set_dr_msg_cb",
    "rd_kafka_conf_destroy",
    "rd_kafka_new",
    "rd_kafka_destroy",
    "rd_kafka_purge",
    "rd_kafka_poll",
)
POINTER = ctypes.c_void_p
NUMBER = ctypes.c_int64

log = logging.getLogger(__name__)


class LibrdkafkaPlugin:
    """The shared object of the native library as a plugin of librdkafka; see `publisher.kafka.clients`.

    Attributes:
        library: the shared object. Calls of its functions release the GIL.
        path: the path of the shared object.
    """

    path = str(OBJECT)

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def handle(self) -> int:
        """Return the librdkafka handle of the client that this thread created last; 0 if there is none."""
        # There is none if librdkafka did not call the plugin for this client, or if the handle was returned already.
        return self.library.kafka_newest() or 0


class IncompatibleLibrdkafka(Exception):
    """The loaded librdkafka is incompatible with the native part. The message contains the reason and the remedy."""


@dataclass(frozen=True)
class PluginStatus:
    """The plugin of this process, and a description of the state of the native part.

    Attributes:
        plugin: the plugin; None if it is not available.
        text: the state of the native part, with the reason if the plugin is not available.
    """

    plugin: LibrdkafkaPlugin | None
    text: str


@cache
def _process_status() -> PluginStatus:
    if native_library().library is None:
        return PluginStatus(None, native_library().status)
    return load_plugin(LibrdkafkaPlugin.path, Path(cimpl.__file__))


def load_plugin(path: str, clients: Path | Mapping[str, Any]) -> PluginStatus:
    """Load the native library as a plugin, and bind librdkafka's functions to it.

    Args:
        path: The path of the shared object.
        clients: The library that exports librdkafka's functions, or the functions by name.

    Returns:
        The status, with the plugin, or with the reason why the plugin cannot be used.
    """
    if ";" in path:
        return PluginStatus(None, f"decodes only, because the path of a plugin must not contain ';': {path}")
    try:
        library = declare_functions(ctypes.CDLL(path))
        bind(library, exported(clients) if isinstance(clients, Path) else clients)
    except (OSError, AttributeError) as error:
        return PluginStatus(None, f"decodes only, because confluent-kafka does not export librdkafka's functions: {error}")
    except IncompatibleLibrdkafka as error:
        log.warning("the native library is not used to fetch events and produce records: %s", error)
        return PluginStatus(None, f"decodes only, because {error}")
    return PluginStatus(LibrdkafkaPlugin(library), native_library().status)


def exported(clients: Path) -> dict[str, Any]:
    """Return the librdkafka functions in FUNCTIONS from the library that exports them.

    Raises AttributeError if a function is missing.
    """
    library = ctypes.CDLL(str(clients))
    return {name: getattr(library, name) for name in FUNCTIONS}


def librdkafka_plugin() -> LibrdkafkaPlugin | None:
    """Return the plugin of this process; None if it is not available."""
    return _process_status().plugin


def plugin_status() -> str:
    """Return the state of the native part in this process as text, with the reason if the plugin is not available."""
    return _process_status().text


def bind(library: ctypes.CDLL, functions: Mapping[str, Any]) -> None:
    """Pass librdkafka's functions to the shared object, and check librdkafka's version and the layout of its structures.

    Args:
        library: The shared object with declared function types; see `declare_functions`.
        functions: The functions named in FUNCTIONS.

    Raises:
        IncompatibleLibrdkafka: librdkafka has another major version, or another layout of a structure, than the shared object
            requires.
    """
    addresses = [ctypes.cast(functions[name], POINTER).value for name in FUNCTIONS]
    major = library.kafka_major()
    remedy = f"install a confluent-kafka release with librdkafka {major}, or a scorestream release for the installed one"
    if version := library.kafka_bind((POINTER * len(addresses))(*addresses)):
        raise IncompatibleLibrdkafka(
            f"librdkafka {format_version(version)} is loaded and version {major}.x is required; {remedy}"
        )
    if mismatch := library.kafka_layout_mismatch():
        raise IncompatibleLibrdkafka(
            f"the structures of the loaded librdkafka are not those of version {major}.x (at {mismatch.decode()}); {remedy}"
        )


def format_version(version: int) -> str:
    """Format a librdkafka version number as `major.minor.revision`, without the pre-release in its lowest byte."""
    return ".".join(str(version >> bits & 0xFF) for bits in (24, 16, 8))


def declare_functions(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the shared object's Kafka functions. Raises AttributeError if a function is missing."""
    types: dict[str, tuple[object, list[object]]] = {
        "kafka_major": (ctypes.c_int, []),
        "kafka_bind": (ctypes.c_int, [POINTER]),
        "kafka_layout_mismatch": (ctypes.c_char_p, []),
        "kafka_newest": (POINTER, []),
        "fetcher_new": (POINTER, [POINTER]),
        "fetcher_free": (None, [POINTER]),
        "fetcher_discard": (None, [POINTER]),
        "fetcher_forward": (None, [POINTER, ctypes.c_char_p, ctypes.c_int32]),
        "fetcher_collect": (NUMBER, [POINTER, NUMBER, ctypes.c_int, POINTER]),
        "fetcher_ends": (ctypes.c_int32, [POINTER, POINTER, POINTER]),
        "fetcher_first_time": (NUMBER, [POINTER]),
        "fetcher_copy": (ctypes.c_int32, [POINTER, POINTER]),
        "fetcher_lane": (ctypes.c_char_p, [POINTER, ctypes.c_int32, POINTER]),
        "records_values": (None, [POINTER, POINTER, POINTER]),
        "records_write": (NUMBER, [POINTER, POINTER, ctypes.c_char_p, NUMBER, POINTER]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
