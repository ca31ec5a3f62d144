"""The parser of the runbooks: the commands of the product in their lines, and the places where they run."""

import pytest

from tests.support.runbooks import MACHINE, RunbookCommand, parse


@pytest.mark.parametrize(
    ("line", "place", "context", "words"),
    [
        ("kubectl -n a exec s-0 -- scorer status scorer.yaml", "s-0", "", ("scorer", "status", "scorer.yaml")),
        ("kubectl --context eu exec -it deploy/t -- scorer tail c | tail -n 5", "deployment/t", "eu", ("scorer", "tail", "c")),
        ("publisher audit c   # on a laptop", MACHINE, "", ("publisher", "audit", "c")),
        ("kubectl -n a exec s-0 -- df -h", None, "", ()),
        ("kubectl -n a logs s-0 --tail=5", None, "", ()),
        ("openssl version", None, "", ()),
    ],
)
def test_a_command_of_the_product_has_a_place(line: str, place: str | None, context: str, words: tuple[str, ...]) -> None:
    assert parse("page", line) == RunbookCommand("page", line, place, context, words)
