"""Bindings of librdkafka: the functions of `fetch.c` and `produce.c`, and the handles of the Kafka clients.

librdkafka is the one that confluent-kafka has loaded, and the clients are confluent-kafka's: the shared object is a plugin of
librdkafka,
which calls a plugin for each new client.
"""

import ctypes
from dataclasses import dataclass
from functools import cache

from confluent_kafka import cimpl

from scorer.native.compiler import OBJECT
from scorer.native.load import native_library

FUNCTIONS = (
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
)
POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64


class LibrdkafkaPlugin:
    """The plugin. `library` has the functions, which release the interpreter's lock. See `publisher.kafka.clients`."""

    path = str(OBJECT)

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def handle(self) -> int:
        """Return the handle of the client that this thread created last; 0 if it was created without this plugin."""
        return self.library.kafka_newest() or 0


@dataclass(frozen=True)
class _Found:
    plugin: LibrdkafkaPlugin | None
    why: str


@cache
def _found() -> _Found:
    if native_library().library is None:
        return _Found(None, native_library().why)
    if ";" in LibrdkafkaPlugin.path:
        return _Found(None, f"decodes only, because a plugin's path has no semicolon: {LibrdkafkaPlugin.path}")
    try:
        clients = ctypes.CDLL(cimpl.__file__)
        functions = [ctypes.cast(getattr(clients, name), POINTER).value for name in FUNCTIONS]
        library = declared(ctypes.CDLL(LibrdkafkaPlugin.path))
    except (OSError, AttributeError) as error:
        return _Found(None, f"decodes only, because confluent-kafka is built otherwise: {error}")
    library.kafka_bind((POINTER * len(functions))(*functions))
    return _Found(LibrdkafkaPlugin(library), native_library().why)


def librdkafka_plugin() -> LibrdkafkaPlugin | None:
    """Return the plugin of this process, or None."""
    return _found().plugin


def in_words() -> str:
    """Describe the native part of this process, and the reason if it is missing."""
    return _found().why


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of the functions. Raises AttributeError if one is missing."""
    types: dict[str, tuple[object, list[object]]] = {
        "kafka_bind": (None, [POINTER]),
        "kafka_newest": (POINTER, []),
        "taker_new": (POINTER, [POINTER]),
        "taker_free": (None, [POINTER]),
        "taker_drop": (None, [POINTER]),
        "taker_forward": (None, [POINTER, ctypes.c_char_p, ctypes.c_int32]),
        "taker_collect": (NUMBER, [POINTER, NUMBER, ctypes.c_int, POINTER]),
        "taker_ends": (ctypes.c_int32, [POINTER, POINTER, POINTER]),
        "taker_first_time": (NUMBER, [POINTER]),
        "taker_copy": (ctypes.c_int32, [POINTER, POINTER]),
        "taker_lane": (ctypes.c_char_p, [POINTER, ctypes.c_int32, POINTER]),
        "records_values": (None, [POINTER, POINTER, POINTER]),
        "records_write": (NUMBER, [POINTER, POINTER, ctypes.c_char_p, NUMBER, POINTER]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
