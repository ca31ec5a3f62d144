"""`python -m tests.docs`: compare generated parts of pages and of the chart's schema with the code; `--write` writes them."""

import argparse
import sys

from tests.docs import chart_schema, pages
from tests.docs.reference import PARTS
from tests.support.environment import ROOT


def main() -> int:
    """Return exit code 0 if every part agrees with the code or was written, 1 if one is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the parts that are stale")
    write = parser.parse_args().write
    stale = []
    for (page, name), make in PARTS.items():
        text = (ROOT / page).read_text()
        now = pages.put(text, name, make())
        if now != text and write:
            (ROOT / page).write_text(now)
        elif now != text:
            stale.append(f"{page} ({name})")
    schema = chart_schema.schema_with_names()
    if schema != chart_schema.SCHEMA.read_text():
        if write:
            chart_schema.SCHEMA.write_text(schema)
        else:
            stale.append(str(chart_schema.SCHEMA.relative_to(ROOT)))
    for part in stale:
        print(f"{part} is stale: python -m tests.docs --write")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
