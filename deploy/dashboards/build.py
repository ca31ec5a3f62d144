"""Writes the dashboards as Grafana imports them: `python deploy/dashboards/build.py` (needs grafana-foundation-sdk).

The code beside this is the source; the JSON files are made from it and kept, so that nobody needs the SDK to use them.
"""

import json
from pathlib import Path

import regions
import scoring
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).parent


def texts() -> dict[Path, str]:
    """Each file and what belongs into it."""
    return {
        FOLDER / f"{module.__name__}.json": json.dumps(module.dashboard().build(), cls=JSONEncoder, indent=1, sort_keys=True)
        + "\n"
        for module in (scoring, regions)
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
