"""The image has the locales that the page on models of text promises: they are built in one stage and copied to the image."""

import pytest

from tests.support.environment import ROOT

LOCALES = "/usr/lib/locale"


def stages() -> dict[str, str]:
    """Return the instructions of each named stage of the Dockerfile, one per line, without comments."""
    text: dict[str, str] = {}
    name = ""
    for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
        if line.startswith("FROM "):
            name = line.partition(" AS ")[2]
        elif not line.startswith("#"):
            text[name] = text.get(name, "") + " ".join(line.split()) + "\n"
    return text


@pytest.mark.parametrize("name", ["en_US", "en_US.UTF-8"])
def test_the_image_has_the_locale(name: str) -> None:
    commands = [part.split() for part in stages()["build"].replace(";", "&&").replace("\n", "&&").split("&&")]
    assert ["localedef", "--no-archive", "-i", "en_US", "-f", "UTF-8", f"{LOCALES}/{name}"] in commands
    assert f"COPY --from=build {LOCALES} {LOCALES}\n" in stages()["image"]


def test_the_page_and_the_hint_name_the_locale_of_the_image() -> None:
    page = " ".join((ROOT / "model_registry/docs/text-models.md").read_text().split())
    assert "usually `en_US`. The image has it." in page
    hint = (ROOT / "model_registry/onnx_tools/locale_hints.py").read_text()
    assert "the image has en_US" in hint
