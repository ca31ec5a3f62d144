"""The names of settings in the schema of the chart's values, made from the code.

Helm rejects an unknown key in `config`, `relays[].config` and `training.config` by these definitions. They hold names only: the
process that reads the settings checks types, ranges and combinations.
"""

import json
from typing import Any

from pydantic import BaseModel

from publisher.relay.settings import RelaySettings
from scorer.settings import Settings
from tests.support.environment import ROOT
from tests.support.every_setting import named_section
from training.settings import RecipeSection, TrainingSettings

SCHEMA = ROOT / "deploy" / "chart" / "values.schema.json"
DEFINITIONS: dict[str, type[BaseModel]] = {
    "scorerSettings": Settings,
    "relaySettings": RelaySettings,
    "trainingSettings": TrainingSettings,
}
"""The name of each definition in the schema, and the settings whose names it has."""
SHORT: tuple[type[BaseModel], ...] = (RecipeSection,)
"""The sections that a text may stand for, such as `recipe: trees`."""


def schema_with_names() -> str:
    """Return the text of the schema with the definitions of the current settings."""
    schema = json.loads(SCHEMA.read_text())
    schema["definitions"] |= {name: names(model) for name, model in DEFINITIONS.items()}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def names(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a section that has the settings of a model, or null. Any value is valid for a setting."""
    properties = {}
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            properties[name] = names(kind)
        elif (section := named_section(kind)) is not None:
            properties[name] = {"type": ["object", "null"], "additionalProperties": names(section)}
        else:
            properties[name] = {}
    types = ["object", "null", *(["string"] if model in SHORT else [])]
    return {"type": types, "properties": properties, "additionalProperties": False}
