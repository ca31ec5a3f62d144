"""Creation of the encoder of a version's feature records.

The Avro schema is registered in the schema registry. This request may block, so the scoring loop must not use this module.
"""

from model_registry.extras import install_command
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from publisher.runtime.dependency_wait import SCHEMA_REGISTRY, DependencyUnavailable
from scorer.backends.base import ModelRefused
from scorer.features.logged_inputs import avro_schema, select_logged
from scorer.features.record_encoder import AvroFeatureEncoder, FeatureEncoder, JsonFeatureEncoder
from scorer.scores.schema_registration import RegistrationDenied, SchemaRejected, register_header
from scorer.settings import Settings


def create_feature_encoder(settings: Settings, signature: Signature) -> FeatureEncoder | None:
    """Create the encoder of the feature records of a version with this signature; None without a feature log.

    Raises:
        Fatal: The libraries of Avro are missing.
        ModelRefused: The schema registry rejects the schema of the feature records.
        DependencyUnavailable: The schema registry does not answer, or it denies the registration. The version is then loaded as
            soon as the registry allows it.
    """
    features = settings.features
    if features.topic is None:
        return None
    logged = select_logged(signature, features.fields)
    if features.format == "json":
        return JsonFeatureEncoder(logged)
    _require_avro()
    try:
        text = avro_schema(logged)
        header = register_header(settings.schema_registry, features.topic, features.format, text, "the feature log")
    except RegistrationDenied as error:
        raise DependencyUnavailable(SCHEMA_REGISTRY, str(error), error.hint) from error
    except SchemaRejected as error:
        raise ModelRefused(f"{error}; {error.hint}") from error
    return AvroFeatureEncoder(logged, header)


def _require_avro() -> None:
    try:
        import confluent_kafka.schema_registry  # noqa: F401
        import fastavro  # noqa: F401 - commands that read the feature log need it
    except ImportError as error:
        raise Fatal(f"features.format avro needs the extra 'avro': {error}", install_command("avro"), USAGE) from error
