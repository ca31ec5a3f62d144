"""The id of a topic, as a description of it has it.

confluent-kafka (2.16) makes an object of it that nothing ever frees: a reference is left over. Whoever looks at a topic twice a
second grows by a megabyte an hour, so the reference is taken back where it is there.
"""

import ctypes
from sys import getrefcount

from confluent_kafka import Uuid
from confluent_kafka.admin import TopicDescription


def topic_id(description: TopicDescription) -> str:
    """The id; the description is nobody else's yet."""
    found, other = description.topic_id, Uuid(0, 0)
    if getrefcount(found) == getrefcount(other) + 2:  # the description's own, and the one left over
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(found))
    return str(found)
