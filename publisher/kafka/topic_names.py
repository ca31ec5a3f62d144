"""Names of topics as people give them. Pure."""

from collections.abc import Iterable

from publisher.errors import USAGE, Fatal


def check(names: Iterable[str]) -> None:
    """Raise Fatal (2) if a name is not UTF-8: confluent-kafka 2.x ends the process for one in `describe_topics`."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Fatal(f"{name!r} is no name of a topic", "use letters, digits, '.', '_' and '-'", USAGE) from None
