"""The headers of untrusted records."""

from collections.abc import Iterable

from confluent_kafka import Message

Headers = list[tuple[str, str | bytes | None]] | None


def headers_of(messages: Iterable[Message]) -> tuple[list[Headers], dict[int, Exception]]:
    """Return the headers of each message, and by index the errors of unreadable ones (whose headers are None).

    A header name that is not UTF-8 makes `Message.headers()` fail. Each message is asked once, and through `map`: a second
    call returns a list
    with a hole that ends the process, and elsewhere the error may appear at a later call (confluent-kafka 2.16).
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
    """Return the headers of one message; None if it has none or they cannot be read."""
    return headers_of([message])[0][0]
