"""Write the dashboards in the format of Grafana: `python deploy/dashboards/build.py` (needs grafana-foundation-sdk).

The code in this folder is the source; the generated JSON files are committed, so that users do not need the SDK.
"""

import json
from pathlib import Path

import regions
import scoring
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).parents[1] / "chart" / "files" / "dashboards"


def texts() -> dict[Path, str]:
    """Return the JSON text of each dashboard by the path of its file."""
    return {
        FOLDER / f"{module.__name__}.json": json.dumps(module.dashboard().build(), cls=JSONEncoder, indent=1, sort_keys=True)
        + "\n"
        for module in (scoring, regions)
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
