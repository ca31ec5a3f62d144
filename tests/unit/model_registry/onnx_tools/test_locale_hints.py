"""The locale that a model needs is named with the command that installs it."""

from model_registry.onnx_tools import locale_hints

ERROR = (
    "Exception during initialization: string_normalizer.cc:90 Locale Failed to construct locale with name:en_US.UTF-8:"
    "locale::facet::_S_create_c_locale name not valid:Please, install necessary language-pack-en and configure locales"
)


def test_the_missing_locale_is_named() -> None:
    assert locale_hints.hint(ERROR) == (
        "the model needs the locale en_US.UTF-8, here and where the scorers run (the image has en_US): "
        "apt-get install locales && localedef -i en_US -f UTF-8 en_US.UTF-8"
    )
    assert locale_hints.hint(ERROR.replace("en_US.UTF-8", "de_DE")).endswith("localedef -i de_DE -f UTF-8 de_DE")
    assert locale_hints.hint("no such operator") == ""
