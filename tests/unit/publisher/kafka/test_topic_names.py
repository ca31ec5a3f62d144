"""Names of topics that the client does not support."""

import pytest

from publisher.errors import USAGE, Fatal
from publisher.kafka import topic_names
from publisher.kafka.acls import DESCRIBE
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.topics import Topics


def test_a_name_that_is_not_utf_8_is_rejected_before_the_client_gets_it() -> None:
    topic_names.check(["flights", "flüge"])
    topics_client = Topics(KafkaSettings(bootstrap_servers="127.0.0.1:1"), "test", "the broker", 0.1)
    for ask in (lambda: topic_names.check(["a", "\udcff"]), lambda: topics_client.allowed({"\udcff": frozenset({DESCRIBE})})):
        with pytest.raises(Fatal, match="is not a valid topic name") as raised:
            ask()
        assert raised.value.exit_code == USAGE
