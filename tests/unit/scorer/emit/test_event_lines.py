"""Lines of emit: JSON values that can be events, and the errors for other files."""

import io

import pytest

from publisher.errors import USAGE, Fatal
from scorer.emit.event_lines import LineKind, events, kind_of


def numbered_lines(data: bytes, kind: LineKind = "object", skip: int = 0) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line, _ in events(io.BytesIO(data), kind, skip)]


def test_lines_are_unchanged_and_numbered_as_in_the_file() -> None:
    assert numbered_lines(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"a":2}') == [(1, b'{"a": 1}'), (4, b'{"a":2}')]
    assert numbered_lines(b"[1, 2]\n", "array") == [(1, b"[1, 2]")]
    assert numbered_lines(b'1\n"a"\n', "any") == [(1, b"1"), (2, b'"a"')]
    assert numbered_lines(b"\x00\xff\n{\n", "raw") == [(1, b"\x00\xff"), (2, b"{")]


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"PAR1\x15\x04\x15\n", "line 1 is not JSON: the file is a Parquet file", "read_parquet"),
        (b"\x1f\x8b\x08\x00\n", "compressed with gzip", "zcat"),
        (b"Obj\x01\x04\n", "an Avro container file", "fastavro"),
        (b"\xff\xfe{\x00\n", "in UTF-16", "iconv"),
        (b"id,amount\n1,2\n", "'id,amount' may be the header of a CSV file", "read_csv"),
        (b'"id";"amount"\n1;2\n', "may be the header of a CSV file", "read_csv"),
        (b'[\n  {"a": 1},\n  {"a": 2}\n]\n', "the file is an indented array", "jq -c '.[]'"),
        (b'{\n  "a": 1\n}\n', "the file is an indented object", "jq -c ."),
        (b'[{"a": 1}, {"a": 2}]\n', "line 1 is an array, not one event", "jq -c '.[]'"),
        (b'{"a": NaN}\n', "has NaN or Infinity, which are not JSON", "write null"),
        (b'{"a": 1}\n{"a": -Infinity}\n', "line 2 is not JSON", "write null"),
        (b'{"a": 1}\n\n{"a": \n', "line 3 is not JSON", "--raw"),
        (b"7\n", "line 1 is '7', but an event is a JSON object", "a JSON object on each line"),
        (b'{"a": "\xff"}\n', "line 1 is not JSON", "in UTF-8"),
    ],
)
def test_line_that_is_no_event_is_rejected_with_a_remedy(data: bytes, message: str, hint: str) -> None:
    with pytest.raises(Fatal) as raised:
        numbered_lines(data)
    assert message in str(raised.value)
    assert hint in raised.value.hint
    assert raised.value.exit_code == USAGE


def test_the_lines_before_an_invalid_line_are_events() -> None:
    lines = events(io.BytesIO(b'{"a": 1}\n{"a": 2}\nnull\n'), "object")
    assert [next(lines), next(lines)] == [(1, b'{"a": 1}', {"a": 1}), (2, b'{"a": 2}', {"a": 2})]
    with pytest.raises(Fatal, match="line 3 is 'null'"):
        next(lines)


def test_input_format_decides_the_json_type_of_lines() -> None:
    kinds = [kind_of(format_name, own=True, raw=False, part=False) for format_name in ("json", "json-envelope", "json-array")]
    assert kinds == ["object", "object", "array"]
    assert kind_of("avro", own=False, raw=False, part=False) == "any"
    assert kind_of("avro", own=True, raw=True, part=False) == "raw"
    assert kind_of("bytes", own=True, raw=False, part=True) == "object"
    for format_ in ("avro", "protobuf", "float32", "bytes"):
        with pytest.raises(Fatal, match=f"input.format is {format_}, but emit reads JSON lines"):
            kind_of(format_, own=True, raw=False, part=False)


def test_raw_lines_lose_only_their_line_end_and_are_parsed_only_for_fields() -> None:
    assert numbered_lines(b"a\r\r\nb\r\n\nc", "raw") == [(1, b"a\r"), (2, b"b"), (4, b"c")]
    (line,) = events(io.BytesIO(b'{"a": 1}'), "raw", fields=True)
    assert line.event == {"a": 1}
    with pytest.raises(Fatal, match="line 2 is not JSON"):
        list(events(io.BytesIO(b"1\n{"), "raw", fields=True))


def test_skipped_lines_are_not_read_and_the_others_keep_their_numbers() -> None:
    assert numbered_lines(b'[\n{\n\n{"a": 1}\n', skip=2) == [(4, b'{"a": 1}')]
    assert numbered_lines(b"[\n", skip=7) == []


class Endless:
    """A file whose first line never ends."""

    def readline(self, size: int, /) -> bytes:
        return b"x" * size


def test_a_file_without_lines_is_rejected_before_it_fills_the_memory() -> None:
    with pytest.raises(Fatal, match=r"line 1 has more than 268,435,456 bytes"):
        next(events(Endless(), "raw"))
