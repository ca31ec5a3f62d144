"""The headers of untrusted records."""

from collections.abc import Iterable

from confluent_kafka import Message

Headers = list[tuple[str, str | bytes | None]] | None


def headers_of(messages: Iterable[Message]) -> tuple[list[Headers], dict[int, Exception]]:
    """Return the headers of each message, and by index the errors of unreadable ones (whose headers are None).

    `Message.headers()` fails if a header name is not UTF-8. It is called once per message, because a second call returns an
    invalid list that ends the process, and through `map`, because otherwise a later call may raise the error (confluent-kafka
    2.16).
    """
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
    """Return the headers of one message; None if it has none or they cannot be read."""
    return headers_of([message])[0][0]
