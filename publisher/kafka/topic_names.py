"""Check topic names that users have entered. Pure."""

from collections.abc import Iterable

from publisher.errors import USAGE, Fatal


def check(names: Iterable[str]) -> None:
    """Raise Fatal with exit code 2 if a name cannot be encoded as UTF-8.

    With such a name, `describe_topics` of confluent-kafka 2.x would end the process.
    """
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Fatal(f"{name!r} is not a valid topic name", "use letters, digits, '.', '_' and '-'", USAGE) from None
