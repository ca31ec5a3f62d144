"""Blocks are found by name, and a wrong name is told clearly."""

import pytest

from tests.docs.blocks import NoBlock, block, joined, named, shell_lines

PAGE = """# Page

<!-- run: start -->
```sh
go --one \\
    --two
stop
```

```sh
unnamed
```

- A list:

  <!-- run: answer -->
  ```json
  {}
  ```
"""


def test_a_block_is_found_by_its_name() -> None:
    found = named({"page.md": PAGE})
    assert joined(found["start"]) == ["go --one      --two", "stop"]
    assert found["answer"].strip() == "{}"
    assert shell_lines(PAGE) == ["go --one      --two", "stop", "unnamed"]


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({"a.md": "<!-- run: x -->\n\n```sh\ny\n```\n"}, "a.md: no code block follows"),
        ({"a.md": "<!-- run: x -->\nwords\n```sh\ny\n```\n"}, "a.md: no code block follows"),
        ({"a.md": PAGE, "b.md": PAGE}, "b.md: the block start is there already"),
    ],
)
def test_a_wrong_name_is_told_with_its_page(pages: dict[str, str], said: str) -> None:
    with pytest.raises(NoBlock, match=said):
        named(pages)


def test_a_block_that_is_not_there_is_told() -> None:
    with pytest.raises(NoBlock, match=r"no page has a block <!-- run: nothing -->; there are .*quickstart"):
        block("nothing")
