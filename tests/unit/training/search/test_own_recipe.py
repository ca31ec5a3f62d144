"""Custom recipes: the inputs of a command, the use of its output, and the message of each failure."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from publisher.errors import REFUSED, Fatal
from tests.support.waiting import until
from tests.unit.training.labelled_rows import SIGNATURE, rows, settings
from training.recipes import contract, own
from training.recipes.own import Own
from training.runs_topic.run_events import NoEvents
from training.search.final_fit import train
from training.search.halving import Best, Searched
from training.search.search import CODE, search

TRAINING, VALIDATION = rows(60), rows(30, seed=2)
SPACE = {"x": {"type": "float", "low": 0.0, "high": 1.0}}
SEARCH = {"trials": 3, "rungs": [2, 4], "reduction": 3, "space": SPACE}
GOOD = """
budget=$(cat budget)
number=$(sed 's/.*"trial":\\([0-9]*\\).*/\\1/' trial.json)
echo "trained $number to $budget"
echo "{\\"budget\\": $budget, \\"auc\\": 0.$number$budget}" >> metrics.jsonl
"""


class Events(NoEvents):
    """Records the events of trials in order."""

    def __init__(self) -> None:
        self.recorded: list[tuple[Any, ...]] = []

    def trial_started(self, trial: int, budget: int, parameters: Mapping[str, Any], *, final: bool = False) -> None:
        self.recorded.append(("started", trial, budget, dict(parameters), final))

    def metrics(self, trial: int, budget: int, values: Mapping[str, float], *, final: bool = False) -> None:
        self.recorded.append(("metrics", trial, budget, dict(values), final))

    def trial_ended(self, trial: int, budget: int, seconds: float, failure: str, log_tail: str, *, final: bool = False) -> None:
        self.recorded.append(("ended", trial, budget, failure, log_tail, seconds, final))


def stated(folder: Path, script: str, **recipe: Any) -> Any:
    (folder / "train.sh").write_text(script)
    section = {"command": ["sh", "train.sh"], "folder": str(folder), **recipe}
    training = settings(recipe=section, search=SEARCH)
    own.copy_code(training.recipe, own.code(training.recipe), folder / CODE)
    return training


def searched(folder: Path, script: str, events: Any = None, **recipe: Any) -> Searched:
    training = stated(folder, script, **recipe)
    search_folder = folder / "search"
    return search(TRAINING, VALIDATION, SIGNATURE, training, Own(), search_folder, lambda *_: None, events or NoEvents())


def failure_of_trial_1(folder: Path, broken: str, **recipe: Any) -> str:
    """Return the failure of trial 1, which runs `broken` in place of the training; the other trials are not affected."""
    script = f"if grep -q '\"trial\":1,' trial.json; then\necho about to fail\n{broken}\nexit 0\nfi\n{GOOD}"
    result = searched(folder, script, **recipe)
    assert [[scored.trial for scored in rung.trials] for rung in result.rungs] == [[0, 2], [2]]
    (failure,) = result.failures
    assert (failure.trial, failure.budget) == (1, 2)
    assert "about to fail" in failure.log
    return failure.reason


def test_a_command_is_searched_by_its_own_metrics(tmp_path: Path) -> None:
    events = Events()
    result = searched(tmp_path, GOOD, events)
    assert [(rung.budget, [scored.score for scored in rung.trials]) for rung in result.rungs] == [
        (2, [0.02, 0.12, 0.22]),
        (4, [0.24]),
    ]
    assert (result.best.trial, result.best.budget, result.best.score, result.failures) == (2, 4, 0.24, ())
    assert ("metrics", 1, 2, {"auc": 0.12}, False) in events.recorded
    assert [event[:3] for event in events.recorded if event[1] == 2 and event[0] != "metrics"] == [
        ("started", 2, 2),
        ("ended", 2, 2),
        ("started", 2, 4),
        ("ended", 2, 4),
    ]


def test_a_command_reads_its_inputs_in_its_folder(tmp_path: Path) -> None:
    searched(tmp_path, GOOD, env={"COLOUR": "blue"})
    folder = tmp_path / "search" / "trials" / "0002"
    assert {path.name for path in folder.iterdir()} == {
        *("rows", "signature.json", "parameters.json", "trial.json", "budget", "resources.json", "checkpoint"),
        *("metrics.jsonl", "log.txt"),
    }
    trial = json.loads((folder / "trial.json").read_text())
    assert trial.pop("deadline").endswith("Z")
    assert trial == {
        "contract": 1,
        "trial": 2,
        "budget": 4,
        "final": False,
        "seed": 2013,
        "metric": "auc",
        "goal": "max",
        "target": {"kind": "binary", "classes": ["0", "1"], "quantile": None, "interval": None},
    }
    assert 0 <= json.loads((folder / "parameters.json").read_text())["x"] <= 1
    assert json.loads((folder / "resources.json").read_text()) == {"workers": 1, "gpus": 0, "rendezvous": None}
    assert (folder / "budget").read_text() == "4\n"
    table = pq.read_table(folder / "rows" / "training.parquet")
    assert table.column_names == [*(field.name for field in SIGNATURE.fields), "label"]
    assert table["label"].to_pylist() == TRAINING.outcomes.tolist()
    assert [value is None for value in table["delay"].to_pylist()] == [v != v for v in TRAINING.tensors["x"][:, 0].tolist()]
    assert json.loads(table.schema.metadata[b"target"]) == trial["target"]
    assert (folder / "rows" / "validation.parquet").samefile(tmp_path / "search" / "rows" / "validation.parquet")


def test_the_command_gets_no_setting_of_the_product(tmp_path: Path) -> None:
    environ = {"MODEL_REGISTRY_KEY_PASSWORD": "secret", "SCORER_KAFKA__SECURITY__PASSWORD": "secret", "HOME": "/home/me"}
    variables = own.environment(stated(tmp_path, GOOD, env={"HOME": "/data"}).recipe, environ, range(1, 2))
    assert "secret" not in variables.values()
    assert (variables["HOME"], variables["CUDA_VISIBLE_DEVICES"]) == ("/data", "1")


def test_a_trial_gets_one_of_the_gpus_of_the_run(tmp_path: Path) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "4,GPU-7"}
    recipe = stated(tmp_path, GOOD).recipe
    assert [own.environment(recipe, environ, gpus)["CUDA_VISIBLE_DEVICES"] for gpus in (range(1), range(1, 2), None)] == [
        "4",
        "GPU-7",
        "4,GPU-7",
    ]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("exit 7", "its process ended with exit code 7"),
        ("kill -SEGV $$", "its process was ended by SIGSEGV"),
        ("kill -35 $$", "its process was ended by signal 35"),
        (":", "metrics.jsonl has no line with 'auc': the recipe wrote no metrics"),
        ('echo \'{"budget": 2, "loss": 1}\' > metrics.jsonl', "metrics.jsonl has no line with 'auc'; its metrics are loss"),
        ("head -c 100 /dev/zero > metrics.jsonl", "metrics.jsonl line 1 is not a JSON object: '\\x00"),
        ("echo '[1, 2]' > metrics.jsonl", "metrics.jsonl line 1 is not a JSON object of at most 100 values: '[1, 2]'"),
        ('echo \'{"budget": 2, "auc": NaN}\' > metrics.jsonl', "metrics.jsonl line 1: 'auc' is nan, but must be finite"),
        (
            'echo \'{"budget": 2, "auc": "high"}\' > metrics.jsonl',
            "metrics.jsonl line 1: 'auc' is 'high', but must be a number",
        ),
        ('echo \'{"budget": 9, "auc": 1}\' > metrics.jsonl', "budget is 9, but must be a whole number from 1 to 2"),
    ],
)
def test_a_broken_trial_is_named_and_costs_no_other(broken: str, reason: str, tmp_path: Path) -> None:
    assert reason in failure_of_trial_1(tmp_path, broken)


def test_a_trial_that_hangs_is_ended_with_all_of_its_processes(tmp_path: Path) -> None:
    broken = "setsid sleep 987654 & sleep 987654"
    assert failure_of_trial_1(tmp_path, broken, deadline="2s") == "it did not end within 2s (recipe.deadline)"
    assert not [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "987654"]]


def test_a_file_above_the_limit_is_refused_and_removed(tmp_path: Path) -> None:
    broken = "truncate -s 3G model.onnx || head -c 3000000 /dev/zero > model.onnx || echo file too large"
    reason = failure_of_trial_1(tmp_path, broken, space=2_000_000)
    assert "bytes of files; the limit is 2,000,000 (recipe.space)" in reason
    assert not (tmp_path / "search" / "trials" / "0001" / "model.onnx").exists()


def test_a_recipe_that_replaces_its_files_starts_again_with_its_own(tmp_path: Path) -> None:
    spoiled = "rm -r checkpoint rows log.txt trial.json; touch checkpoint; mkdir rows log.txt; ln -s /etc/passwd trial.json"
    result = searched(tmp_path, f"{GOOD}\nls rows/training.parquet\n{spoiled}")
    assert [len(rung.trials) for rung in result.rungs] == [3, 1]
    assert (result.best.budget, result.failures) == (4, ())


def test_all_trials_that_fail_end_the_search_with_the_reasons_and_are_tried_again(tmp_path: Path) -> None:
    with pytest.raises(Fatal) as raised:
        searched(tmp_path, "echo no luck; exit 5")
    assert raised.value.exit_code == REFUSED
    assert "all 3 trials failed before the budget 2:\n  trial 0: its process ended with exit code 5" in str(raised.value)
    assert "no luck" in str(raised.value)
    assert not list(tmp_path.glob("search/scores/*/*.json"))


def test_metrics_of_a_failed_trial_do_not_count_when_it_is_tried_again(tmp_path: Path) -> None:
    script = 'test -e {0} && echo \'{{"budget": 1, "auc": 0.5}}\' >> metrics.jsonl && exit 0\n{1}\nexit 5'
    unlucky = script.format(tmp_path / "luck", 'echo \'{"budget": 2, "auc": 0.9}\' >> metrics.jsonl')
    with pytest.raises(Fatal, match="all 3 trials failed"):
        searched(tmp_path, unlucky)
    (tmp_path / "luck").touch()
    best = searched(tmp_path, unlucky).best
    assert (best.budget, best.score) == (1, 0.5)


def test_a_recipe_that_stops_early_is_trained_up_to_that_budget(tmp_path: Path) -> None:
    result = searched(tmp_path, 'echo \'{"budget": 1, "auc": 0.9}\' >> metrics.jsonl')
    assert (result.best.budget, result.best.score) == (1, 0.9)
    assert result.rungs[0].trials[0].reached == 1


def final(folder: Path, script: str, **recipe: Any) -> Path:
    best = Best(2, {"x": 0.5}, 4, 0.9)
    events = NoEvents()
    train(TRAINING, VALIDATION, SIGNATURE, stated(folder, script, **recipe), Own(), best, folder / "model", events)
    return folder / "model"


def test_the_final_training_has_both_parts_and_writes_a_model(tmp_path: Path) -> None:
    folder = final(tmp_path, "ls rows > seen; cat parameters.json >> seen; echo model > model.onnx")
    assert (folder / "seen").read_text() == 'training.parquet\n{"x":0.5}\n'
    assert pq.read_metadata(folder / "rows" / "training.parquet").num_rows == 90
    assert contract.read_trial(folder).final


def test_the_rows_of_the_final_training_do_not_count_as_written(tmp_path: Path) -> None:
    folder = final(tmp_path, "echo model > model.onnx")
    before = contract.size(folder)
    (folder / "rows" / "training.parquet").chmod(0o600)
    (folder / "rows" / "training.parquet").write_bytes(bytes(3_000_000))
    (folder / "rows" / "cached").write_bytes(bytes(4_096))
    assert contract.size(folder) == before + 4_096


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo trained", "it ended with exit code 0, but wrote no model.onnx and no package/"),
        ("mkdir package; touch package/model.onnx", "package/ has no signature.json"),
        ("ln -s /etc/hostname model.onnx", "it ended with exit code 0, but wrote no model.onnx"),
    ],
)
def test_a_final_training_without_a_model_is_refused(script: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"the final training \(trial 2, budget 4\) failed: ") as raised:
        final(tmp_path, script)
    assert reason in str(raised.value)
    assert raised.value.exit_code == REFUSED


def test_a_launcher_starts_as_many_processes_as_workers(tmp_path: Path) -> None:
    recipe = stated(tmp_path, GOOD, launcher=["mpirun", "-n", "{workers}"]).recipe
    assert own.command(recipe, tmp_path / CODE, 3) == ["mpirun", "-n", "3", "sh", str(tmp_path / CODE / "train.sh")]
    assert own.command(recipe, tmp_path / CODE) == ["sh", str(tmp_path / CODE / "train.sh")]


def test_a_volume_of_a_config_map_is_copied_by_the_names_of_its_links(tmp_path: Path) -> None:
    (tmp_path / "..2026_01_01").mkdir()
    (tmp_path / "..2026_01_01" / "train.py").write_text("print()")
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "train.py").symlink_to("..data/train.py")
    recipe = settings(recipe={"command": ["python", "train.py"], "folder": str(tmp_path)}, search=SEARCH).recipe
    assert own.code(recipe).keys() == {"train.py"}
    assert own.command(recipe, Path("/copy")) == [sys.executable, "/copy/train.py"]
    above = settings(recipe={"command": ["python", tmp_path.name], "folder": str(tmp_path.parent)}, search=SEARCH).recipe
    assert own.code(above).keys() == {f"{tmp_path.name}/train.py"}
    (tmp_path / "train.py").unlink()
    (tmp_path / "train.py").symlink_to("/etc/hostname")
    with pytest.raises(Fatal, match=r"train\.py is outside of"):
        own.code(recipe)


@pytest.mark.parametrize("kind", ["pipe", "large"])
def test_code_that_cannot_be_copied_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(tmp_path / "train.py")
    else:
        (tmp_path / "train.py").touch()
        os.truncate(tmp_path / "train.py", 1 << 40)
    recipe = settings(recipe={"command": ["python", "train.py"], "folder": str(tmp_path)}, search=SEARCH).recipe
    with pytest.raises(Fatal, match="it is not a regular file" if kind == "pipe" else "more than 100,000,000 bytes"):
        own.code(recipe)


def test_a_script_in_an_argument_is_no_name_of_a_file(tmp_path: Path) -> None:
    script = "print(1);" * 100
    recipe = settings(recipe={"command": ["python", "-c", script], "folder": str(tmp_path)}, search=SEARCH).recipe
    assert own.code(recipe) == {}
    assert own.command(recipe, Path("/copy")) == [sys.executable, "-c", script]


def test_code_that_changes_in_a_run_does_not_affect_it(tmp_path: Path) -> None:
    training = stated(tmp_path, GOOD)
    before = own.code(training.recipe)
    (tmp_path / "train.sh").write_text("exit 1")
    assert own.code(training.recipe) != before
    own.copy_code(training.recipe, before, tmp_path / CODE)
    assert (tmp_path / CODE / "train.sh").read_text() == GOOD
    with pytest.raises(Fatal, match="files have changed since the run began"):
        own.copy_code(training.recipe, before, tmp_path / "other")


def test_no_process_outlives_a_killed_search(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("setsid sleep 876543 & sleep 876543")
    command = [sys.executable, "-m", "tests.unit.training.search.test_own_recipe", str(tmp_path)]
    with subprocess.Popen(command) as parent:
        until(lambda: len(sleeping()) >= 2, "the processes of the command")
        os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not sleeping(), "the end of the processes")


def sleeping() -> list[Any]:
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "876543"]]


if __name__ == "__main__":
    searched(Path(sys.argv[1]), Path(sys.argv[1], "train.sh").read_text())
