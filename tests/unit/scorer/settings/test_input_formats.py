"""The list of input formats."""

from typing import get_args

from scorer.settings.input import InputSettings
from scorer.settings.input_formats import INPUT_FORMATS, FormatName


def test_the_setting_takes_exactly_the_formats_of_the_list() -> None:
    assert get_args(InputSettings.model_fields["format"].annotation) == get_args(FormatName) == tuple(INPUT_FORMATS)


def test_a_format_without_named_fields_has_no_schema() -> None:
    assert all(format_.fields == "named" for format_ in INPUT_FORMATS.values() if format_.has_schema)
