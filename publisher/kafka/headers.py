"""The headers of records that anybody may have written."""

from collections.abc import Iterable

from confluent_kafka import Message

Headers = list[tuple[str, str | bytes | None]] | None


def headers_of(messages: Iterable[Message]) -> tuple[list[Headers], dict[int, Exception]]:
    """The headers of each message; and by place, why those of a message cannot be read (None stands there).

    A header name that is not UTF-8 makes `Message.headers()` fail. Each message is asked once, and through `map`: a second call
    hands out a list with a hole that ends the process, and elsewhere the error may show at a later call (confluent-kafka 2.16).
    """
    coming = iter(messages)
    found: list[Headers] = []
    unread: dict[int, Exception] = {}
    while True:
        try:
            found.extend(map(Message.headers, coming))  # type: ignore[arg-type]
        except (SystemError, UnicodeError) as error:
            unread[len(found)] = error.with_traceback(None)  # its frames keep the messages
            found.append(None)
        else:
            return found, unread


def headers_of_one(message: Message) -> Headers:
    """The headers of one message; None where it has none, or they cannot be read."""
    return headers_of([message])[0][0]
