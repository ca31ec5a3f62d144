"""training.yaml: durations, paths and defaults, and every wrong value is reported with its name and a remedy."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from publisher.errors import USAGE, Fatal
from publisher.runtime.configuration import Section
from tests.docs.reference import docstrings
from tests.support.environment import ROOT
from training import settings
from training.settings import TrainingSettings, load

DAY_MS = 86_400_000


def write(folder: Path, training: dict[str, Any], **scorer: Any) -> Path:
    stated = {
        "name": "n",
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "input": {"topics": ["in"]},
        "output": {"topic": "out"},
        "model": {"source": "oci:./registry/m"},
        "labels": {"topic": "labels"},
    }
    (folder / "scorer.yaml").write_text(yaml.safe_dump(stated | scorer))
    path = folder / "training.yaml"
    path.write_text(yaml.safe_dump({"scorer": "scorer.yaml", **training}))
    return path


def test_a_file_that_names_only_its_scorer_has_every_default(tmp_path: Path) -> None:
    training, scorer = load(write(tmp_path, {}))
    assert (training.scorer, training.signature) == (tmp_path / "scorer.yaml", None)
    assert training.folder == tmp_path / "runs"
    assert (training.labels.after, training.snapshot.window) == (DAY_MS, 90 * DAY_MS)
    assert scorer.labels.topic == "labels"


def test_durations_are_milliseconds_and_written_as_they_are_read() -> None:
    for text, ms in (("90s", 90_000), ("15m", 900_000), ("36h", 36 * 3_600_000), ("90d", 90 * DAY_MS), ("0s", 0)):
        assert settings.milliseconds(text) == ms == settings.milliseconds(settings.written(ms))
    assert settings.written(90 * DAY_MS) == "90d"


def test_settings_are_read_back_from_their_json(tmp_path: Path) -> None:
    training, _ = load(write(tmp_path, {"labels": {"after": "90s"}, "snapshot": {"at_least": 3}}))
    assert TrainingSettings.model_validate(training.model_dump(mode="json")) == training


def test_the_source_of_the_inputs_is_named_from_in_files_and_in_json(tmp_path: Path) -> None:
    training, _ = load(write(tmp_path, {"snapshot": {"from": "features"}}))
    assert training.snapshot.from_ == "features"
    assert training.model_dump(mode="json")["snapshot"]["from"] == "features"
    assert TrainingSettings.model_validate(training.model_dump(mode="json")) == training


def test_paths_of_the_file_are_from_its_folder(tmp_path: Path) -> None:
    stated = {"signature": "s.json", "folder": "made/here", "publish": {"key_file": "k.key", "rollout": "plan.yaml"}}
    training, _ = load(write(tmp_path, stated))
    assert training.signature == tmp_path / "s.json"
    assert training.folder == tmp_path / "made" / "here"
    assert (training.publish.key_file, training.publish.rollout) == (tmp_path / "k.key", tmp_path / "plan.yaml")


def test_flags_override_the_file(tmp_path: Path) -> None:
    assert load(write(tmp_path, {"labels": {"coverage": 0.1}}), ["labels.coverage=0.2"])[0].labels.coverage == 0.2


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"labels": {"afer": "1d"}}, "unknown key; the nearest valid name is 'after'"),
        ({"labels": {"after": "soon"}}, "'soon' is not a valid duration; write a number and a unit"),
        ({"labels": {"after": 5}}, "'5' is not a valid duration; write a number and a unit"),
        ({"labels": {"after": "80d"}}, "labels.after 80d, validation 14d, hold_out 14d use the whole window"),
        ({"snapshot": {"window": "28d"}}, "use the whole window 28d, so no time is left for training"),
        ({"snapshot": {"hold_out": "0d"}}, "greater than 0"),
        (
            {"gate": {"block": "4d"}},
            "block 4d divides snapshot.hold_out 14d into 3.5 blocks; their number must be from 5 to 1,000",
        ),
        ({"gate": {"block": "1m"}}, "block 1m divides snapshot.hold_out 14d into 20,160 blocks"),
        ({"gate": {"slices": ["a..b"]}}, "'a..b' is not a valid path"),
        ({"snapshot": {"at_least": "many"}}, "snapshot.at_least (PATH): 'many': Input should be a valid integer"),
        ({"search": {"rungs": [3, 3]}}, "rungs must be increasing whole numbers, such as [27, 81, 243]"),
        ({"search": {"rungs": []}}, "Tuple should have at least 1 item"),
        ({"recipe": "forest"}, "'forest' is not one of 'trees' or 'network'"),
        ({"snapshot": {"from": "tables"}}, "snapshot.from (PATH): 'tables' is not one of 'events' or 'features'"),
        ({"snapshot": {"form": "events"}}, "unknown key; the nearest valid name is 'from'"),
        ({"scorer": "none.yaml"}, "cannot read FOLDER/none.yaml"),
        ({"evaluation": {"quantile": 1}}, "evaluation.quantile (PATH): 1: Input should be less than 1"),
        ({"evaluation": {"quantil": 0.9}}, "unknown key; the nearest valid name is 'quantile'"),
        ({"evaluation": {"interval": {"low": "a", "high": "b", "level": 80}}}, "evaluation.interval.level (PATH): 80: Input"),
        ({"evaluation": {"interval": {"low": "a", "high": "a", "level": 0.8}}}, "low and high are both 'a'; name the outputs"),
        ({"evaluation": {"interval": {"low": "a", "high": "b"}}}, "evaluation.interval.level: this setting is missing"),
        ({"evaluation": {"interval": {"low": "a", "hi": "b"}}}, "unknown key; the nearest valid name is 'high'"),
        (
            {"evaluation": {"interval": {"low": "a", "high": "b", "level": 0.8}}},
            "evaluation.interval has low 'a' and high 'b', but recipe trees trains one output; set recipe.command",
        ),
        ({"evaluation": {"interval": "secret"}}, "evaluation.interval (PATH): Input should be"),
        (
            {"gate": {"metric": "quantile_loss"}},
            "gate.metric is 'quantile_loss': set evaluation.quantile, such as 0.9, or name",
        ),
        (
            {"search": {"metric": "interval_score"}},
            "search.metric is 'interval_score': set evaluation.interval, such as {low: ",
        ),
    ],
)
def test_a_wrong_value_is_reported_with_its_name_and_the_remedy(stated: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, stated)
    with pytest.raises(Fatal) as raised:
        load(path)
    assert raised.value.exit_code == USAGE
    assert message.replace("PATH", str(path)).replace("FOLDER", str(tmp_path)) in str(raised.value)


def test_a_scorer_without_a_topic_of_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"labels\.topic is not set") as raised:
        load(write(tmp_path, {}, labels={}))
    assert (raised.value.exit_code, "labels: {topic: NAME" in raised.value.hint) == (USAGE, True)


def test_the_page_has_every_setting_with_its_description_and_default() -> None:
    table = (ROOT / "deploy/training/settings.md").read_text().partition("| setting |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", table, re.MULTILINE))
    documented: dict[str, tuple[str, Any]] = {}
    for name, field in TrainingSettings.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            defaults = inner().model_dump(mode="json")
            for key, setting in inner.model_fields.items():
                stated = setting.alias or key
                documented[f"{name}.{stated}"] = docstrings(inner)[key], defaults[stated]
        else:
            documented[name] = docstrings(TrainingSettings)[name], None
    assert set(rows) == set(documented)
    for name, (words, default) in documented.items():
        assert rows[name].endswith(f"| {words}") or default is None, name
        assert default is None or rows[name].startswith(f"`{default}` |"), name
