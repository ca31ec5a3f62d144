"""The id of a topic, from the description that the administrative client returns.

confluent-kafka (2.16) leaks a reference to each id object. Polling a topic twice a second would leak a megabyte an hour, so the
leaked reference is released here.
"""

import ctypes
from sys import getrefcount

from confluent_kafka import Uuid
from confluent_kafka.admin import TopicDescription


def topic_id(description: TopicDescription) -> str:
    """Return the id of the described topic. The description's `topic_id` must not have been read before."""
    uuid = description.topic_id
    other = Uuid(0, 0)
    if getrefcount(uuid) == getrefcount(other) + 2:  # the description's own, and the one left over
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(uuid))
    return str(uuid)
