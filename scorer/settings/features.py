"""The settings of the feature log (`features`): its topic, the sample of events, the logged fields and the record format."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from publisher.runtime.configuration import Section, TopicName

FieldName = Annotated[str, Field(min_length=1)]


class FeatureLogSettings(Section):
    """The feature log: the inputs with which the model scored each event."""

    topic: TopicName | None = None
    """The topic of the feature log, which gets one record for each score, in the transaction of the score. Without a topic,
    there is no feature log."""
    sample: float = Field(default=1.0, gt=0, le=1)
    """The share of keys whose events are logged, such as `0.01`. The sample is selected by a hash of the key, so it is the same
    in every scorer and after every restart. An event without a key is selected by its position."""
    fields: Literal["all"] | list[FieldName] = "all"
    """The fields of the signature that are logged: `all`, or a list of names. A version ignores names that it does not have."""
    format: Literal["json", "avro"] = "json"
    """The format of a record. `avro` needs `schema_registry.url`; the schema is registered under `<topic>-value`."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> "FeatureLogSettings":
        if self.fields != "all" and (not self.fields or len(set(self.fields)) != len(self.fields)):
            raise ValueError("fields must list at least one name, each once; or write all")
        return self
