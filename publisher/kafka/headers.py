"""Read the headers of untrusted records, in which a header name may be invalid."""

from collections.abc import Iterable

from confluent_kafka import Message

Headers = list[tuple[str, str | bytes | None]] | None


def headers_of(messages: Iterable[Message]) -> tuple[list[Headers], dict[int, Exception]]:
    """Return (headers, errors): the headers of each message, and the errors of unreadable headers by message index.

    The headers of a message are None if they are unreadable or the message has no headers.
    """
    # `Message.headers()` fails if a header name is not UTF-8. It is called only once per message, because a second call returns
    # an invalid list that crashes the process. It is called through `map`, because otherwise a later, unrelated call may raise
    # the error (confluent-kafka 2.16).
    remaining = iter(messages)
    headers: list[Headers] = []
    unread: dict[int, Exception] = {}
    while True:
        try:
            headers.extend(map(Message.headers, remaining))  # type: ignore[arg-type]
        except (SystemError, UnicodeError) as error:
            unread[len(headers)] = error.with_traceback(None)  # the frames would keep the messages
            headers.append(None)
        else:
            return headers, unread


def headers_of_one(message: Message) -> Headers:
    """Return the headers of one message; None if the message has no headers or its headers cannot be read."""
    return headers_of([message])[0][0]
