r"""Check that text from events is valid Unicode, so that it can be used in score records, headers and models.

An escape in JSON can contain half of a surrogate pair (`"\ud83d"`), which cannot be encoded in UTF-8. msgspec rejects such
events, so text that msgspec decodes needs no check. The standard library's parser, which reads the events that msgspec rejects,
accepts half of a pair. Therefore text from this parser must be checked before it leaves the decoder.

Text in other formats, in keys and in headers is invalid if it is not UTF-8. The library that decodes it raises an error.
"""

from typing import Any

from scorer.dead_letters.reasons import Poison, Reason

SHOWN = 40  # characters or bytes of the text in an error message, on each side of the invalid one
REMEDY = "write both halves, and cut text only between characters"
NOT_UTF8 = "not UTF-8; write text in UTF-8"


def check_text(field: str, value: Any) -> None:
    """Check that a string, or each string in a list and its nested lists, is valid Unicode. Other values are accepted.

    Args:
        field: the quoted name of the field, for the error message.
        value: the value of the field.

    Raises:
        Poison: a string contains half of a surrogate pair.
    """
    waiting = [value]  # no recursion: arrays may be 1,000 levels deep
    while waiting:
        element = waiting.pop()
        if isinstance(element, list):
            waiting.extend(reversed(element))
        elif isinstance(element, str):
            try:
                element.encode()
            except UnicodeEncodeError as error:
                half = f"{element[error.start]!r} is half of a surrogate pair and not valid Unicode; {REMEDY}"
                raise Poison(Reason.NOT_UTF8, f"field {field} contains {_excerpt(element, error.start)}: {half}") from None


def explain_not_utf8(error: UnicodeDecodeError) -> str:
    """Return the end of an error message about bytes that are not UTF-8: an excerpt of the bytes, and the remedy."""
    return f"is {_excerpt(error.object, error.start)}, which is {NOT_UTF8}"


def _excerpt(text: str | bytes, at: int) -> str:
    begin = max(0, at - SHOWN)
    end = at + SHOWN + 1
    before = "..." if begin else ""
    after = "..." if end < len(text) else ""
    return f"{before}{text[begin:end]!r}{after}"
