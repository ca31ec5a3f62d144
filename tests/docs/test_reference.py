"""The pages agree with the code: generated tables, dead letters, exit codes, pictures, the score record."""

import json
import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from model_registry.package import field_sources
from model_registry.package.event_tree import look_up
from model_registry.package.golden_examples import parse_lines
from model_registry.package.padding import MAX_STEPS, bucket
from model_registry.package.signature_schema import parse_signature
from publisher.audit.event_audit import EventReport
from publisher.audit.region_audit import RegionsReport
from publisher.audit.relay_audit import CopyReport
from publisher.audit.report import Report
from scorer.dead_letters import headers
from scorer.dead_letters.reasons import Reason
from scorer.decoding.passthrough_fields import follow_path
from scorer.settings import Settings
from scorer.settings.carry import LONGEST
from scorer.settings.output import OutputSettings
from tests.benchmarks.bench import plot
from tests.docs import chart_schema, pages, reference
from tests.support.environment import ROOT
from tests.support.every_setting import setting_names

READ_SCORES, SIGNATURE = "scorer/docs/read-scores.md", "model_registry/docs/signature.md"
FIELDS, LENGTHS, TEXT_MODELS, OWN_MODEL = (
    f"model_registry/docs/{name}.md" for name in ("fields", "batches-and-lengths", "text-models", "your-own-model")
)


@pytest.mark.parametrize("part", list(reference.PARTS), ids=":".join)
def test_a_generated_part_agrees_with_the_code(part: tuple[str, str]) -> None:
    page, name = part
    text = (ROOT / page).read_text()
    assert pages.put(text, name, reference.PARTS[part]()) == text, "python -m tests.docs --write"


def test_the_schema_of_the_chart_has_the_names_of_all_settings() -> None:
    assert chart_schema.schema_with_names() == chart_schema.SCHEMA.read_text(), "python -m tests.docs --write"


def test_every_generated_part_of_a_page_has_its_maker() -> None:
    parts = {
        (str(page.relative_to(ROOT)), name)
        for page in pages.pages()
        for name in re.findall(r"^<!-- made: ([\w-]+) -->$", page.read_text(), re.MULTILINE)
    }
    assert parts == set(reference.PARTS)


def test_every_setting_has_its_own_row_and_description() -> None:
    rows = re.findall(r"^\| `([A-Za-z_.]+)` \| (.+) \| (.+) \| (.+) \|$", reference.settings(), re.MULTILINE)
    assert {name for name, *_ in rows} == setting_names(Settings)
    assert all(words.endswith(".") for *_, words in rows)


def test_a_setting_without_a_docstring_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(BaseModel):
        count: int = 1

    monkeypatch.setattr(reference, "Settings", Bare)
    with pytest.raises(ValueError, match="count has no docstring"):
        reference.settings()


@pytest.mark.parametrize("report", [EventReport, RegionsReport, CopyReport])
def test_every_field_of_an_audits_report_is_documented(report: type[Report]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (fault)? ?\| (.+) \|$", reference.audit_counts(report), re.MULTILINE)
    assert {"clean", *(name for name, *_ in rows)} == set(report().to_dict())
    assert {name for name, fault, _ in rows if fault} == set(report().faults)
    assert all(words.endswith(".") for *_, words in rows)


def test_every_reason_and_header_of_a_dead_letter_is_documented() -> None:
    section = (ROOT / "scorer/docs/dead-letters.md").read_text().partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE)) == {reason.value for reason in Reason}
    assert {name for name in headers.DEAD_LETTER_HEADERS if f"`{name}`" not in section} == set()


def test_the_fields_of_log_lines_are_those_of_the_examples() -> None:
    text = (ROOT / "scorer/docs/logs.md").read_text()
    documented = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    examples = [json.loads(line) for line in re.findall(r"^\{.*\}$", reference.log_lines(), re.MULTILINE)]
    formats = {"auto", "json", "text"}
    other_owners = {"publisher", "controller", "console", "training"}
    assert set().union(*examples) == documented - formats - other_owners


def test_the_example_of_a_score_has_the_fields_of_the_record() -> None:
    record = json.loads(pages.blocks(READ_SCORES)["score"])
    assert {*record, "fallback"} == set(re.findall(r"^\| `(\w+)` \|", reference.score_record(), re.MULTILINE))


def test_the_carried_fields_of_the_page_are_those_of_its_example() -> None:
    output = OutputSettings.model_validate(yaml.safe_load(pages.blocks(READ_SCORES)["carry"])["output"])
    (example,) = re.findall(r'`"carried": (\{.+\})`', (ROOT / READ_SCORES).read_text())
    event = json.loads('{"amount": 12.5, "items": [], "after": {"id": "c-1"}}')
    carried = {field.name: field.fitted(follow_path(event, field.path)) for field in output.carry}
    assert carried == json.loads(example)
    assert f"{LONGEST:,} bytes" in (ROOT / READ_SCORES).read_text()


def test_the_signature_and_the_golden_example_fit_each_other() -> None:
    blocks = pages.blocks(SIGNATURE) | pages.blocks(FIELDS) | pages.blocks(LENGTHS) | pages.blocks(TEXT_MODELS)
    example = json.loads(blocks["golden"])
    assert {field.name for field in parse_signature(blocks["signature"]).fields} == set(example["event"])
    shapes = {item.tensor: item.full_shape for item in parse_signature(blocks["shapes"]).inputs}
    assert shapes == {"pixels": (None, 3, 224, 224), "age": (None,), "state": (None, 2, 128), "sample_rate": ()}
    answers = parse_signature(blocks["answers"])
    score = json.loads(blocks["answers-score"])
    assert list(score) == [item.name for item in answers.outputs]
    assert [item["label"] for item in score["species"]] == ["dog", "cat"]
    assert parse_lines(json.dumps({"event": {}, "score": score, "tolerance": 0}).encode(), None)
    varying = parse_signature(blocks["lengths"])
    assert [item.full_shape for item in varying.inputs] == [(None, -1), (None, -1)]
    page = (ROOT / LENGTHS).read_text()
    buckets = sorted({bucket(length, 512) for length in range(65)})
    assert f"padded to {', '.join(map(str, buckets))}, ..." in page
    assert f"at most {MAX_STEPS:,} tokens" in page
    assert set(example) == {"event", "score", "tolerance"}
    (file,) = parse_signature(blocks["files"]).fields
    assert (file.source, file.raw, file.max_length) == ("value", True, 2_000_000)
    assert [field.source for field in parse_signature(blocks["values"]).fields] == ["value", "key", "header:price", "time"]
    columns = {
        field.name: field_sources.column_steps(field) for field in parse_signature(blocks["joined"]).fields if field.source
    }
    assert columns == {"customers.age": ("age",), "zip": ("address", "zip")}
    (nested,) = parse_lines(blocks["paths-golden"].encode(), parse_signature(blocks["paths"]))
    assert [look_up(nested.event, field.steps) for field in parse_signature(blocks["paths"]).fields] == [3, 8, 5]


@pytest.mark.parametrize("page", ["README.md", OWN_MODEL])
def test_configurations_name_only_settings_that_exist(page: str) -> None:
    configurations = [text for name, text in pages.blocks(page).items() if name.endswith("configuration")]
    assert configurations
    for text in configurations:
        Settings.model_validate(yaml.safe_load(text))


def test_the_picture_of_the_figures_is_that_of_the_bench(tmp_path: Path) -> None:
    plot.write(plot.KEPT, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text() == (ROOT / "deploy" / "images" / "benchmark_vs_peers.svg").read_text()


def test_the_configuration_of_the_compose_file_is_valid() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    file = ROOT / "deploy" / compose["configs"]["scorer"]["file"]
    assert Settings.model_validate(yaml.safe_load(file.read_text())).model.plain_http == ["registry:5000"]
