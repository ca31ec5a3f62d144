"""Halving: the same result for any number of workers and after any interruption; no process outlives its parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import UNREACHABLE, USAGE, Fatal
from tests.unit.training.labelled_rows import SIGNATURE, rows, settings
from training.recipes import Params, contract
from training.recipes.trees import Trees
from training.runs_topic.run_events import NoEvents
from training.search import halving
from training.search.final_fit import together, train
from training.search.halving import Searched
from training.search.search import search

TRAINING, VALIDATION = rows(600), rows(300, seed=2)


def searched(folder: Path, recipe: Any = None, **stated: Any) -> Searched:
    return search_rows(TRAINING, settings(**stated), folder, recipe=recipe)


def search_rows(training: Any, stated: Any, folder: Path, progress: Any = lambda *_: None, recipe: Any = None) -> Searched:
    return search(training, VALIDATION, SIGNATURE, stated, recipe or Trees(), folder, progress, NoEvents())


class Dying(Trees):
    """Trees whose process is killed a given number of times before the second rung."""

    def __init__(self, folder: Path, times: int) -> None:
        super().__init__()
        self._folder, self._times = folder, times

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._folder, self._times)

    def fit(self, rows: Any, signature: Any, params: Params, budget: int, folder: Path, **options: Any) -> Any:
        if budget == 8 and len(list(self._folder.glob("death-*"))) < self._times:
            (self._folder / f"death-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(rows, signature, params, budget, folder, **options)


class Refusing(Trees):
    """A recipe that rejects every signature."""

    def fit(self, *_: Any, **__: Any) -> Any:
        raise Fatal("no", "this way", USAGE)


class Ended(Trees):
    """A recipe whose processes were ended."""

    def fit(self, *_: Any, **__: Any) -> Any:
        raise Fatal("torchrun was ended by SIGKILL", "run again", UNREACHABLE)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    return searched(tmp_path_factory.mktemp("unbroken"))


def test_the_best_trials_continue_from_rung_to_rung(unbroken: Searched) -> None:
    assert [(rung.budget, len(rung.trials), len(rung.kept)) for rung in unbroken.rungs] == [(4, 4, 2), (8, 2, 1), (30, 1, 1)]
    first = {scored.trial: scored.score for scored in unbroken.rungs[0].trials}
    assert unbroken.rungs[0].kept == tuple(sorted(first, key=lambda trial: -first[trial])[:2])
    assert unbroken.best.score == max(scored.score for rung in unbroken.rungs for scored in rung.trials)
    assert unbroken.best.parameters == unbroken.trials[unbroken.best.trial].parameters
    assert (unbroken.spent, unbroken.unstopped) == (4 * 4 + 2 * 4 + 22, 4 * 30)
    assert (unbroken.best.budget, unbroken.best.score) in unbroken.curve
    assert unbroken.best.score > 0.75


def test_the_result_is_a_json_document(unbroken: Searched) -> None:
    document = msgspec.to_builtins(unbroken)
    assert list(document) == ["metric", "rungs", "trials", "best", "spent", "unstopped"]
    assert msgspec.json.decode(msgspec.json.encode(unbroken), type=Searched) == unbroken
    assert document["best"].keys() == {"trial", "parameters", "budget", "score"}


def test_any_number_of_workers_has_the_same_result(unbroken: Searched, tmp_path: Path) -> None:
    assert [searched(tmp_path / str(count), workers=count) for count in (2, 4)] == [unbroken] * 2


def test_trial_0_has_the_stated_parameters_and_the_others_draw_the_rest(tmp_path: Path) -> None:
    result = searched(tmp_path, parameters={"num_leaves": 5}, search={"trials": 3, "rungs": [2]})
    assert [tried.parameters["num_leaves"] for tried in result.trials] == [5, 5, 5]
    assert result.trials[0].parameters == Trees().parameters({"num_leaves": 5})
    assert len({tried.parameters["learning_rate"] for tried in result.trials}) == 3
    assert (result.spent, result.unstopped) == (6, 6)


def test_one_trial_is_no_search(tmp_path: Path) -> None:
    result = searched(tmp_path, search={"trials": 1, "rungs": [2, 4]})
    assert (result.best.trial, result.best.parameters, len(result.curve)) == (0, Trees().parameters({}), 2)


def test_a_search_resumes_from_existing_scores(unbroken: Searched, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    recipe = Trees()
    searched(tmp_path, search={"trials": 4, "rungs": [4, 8], "reduction": 2})
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("scores/*/*.json")}
    assert len(times) == 6
    result = search_rows(TRAINING, settings(), tmp_path, lambda *at: progress.append(at), recipe)
    assert result == unbroken
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert progress == sorted(progress)
    assert progress[-1] == (unbroken.spent, unbroken.spent)


def test_scores_of_other_rows_or_another_seed_are_not_reused(tmp_path: Path) -> None:
    before = searched(tmp_path, search={"trials": 1, "rungs": [4]})
    after = search_rows(rows(600, seed=3), settings(search={"trials": 1, "rungs": [4]}), tmp_path)
    reseeded = searched(tmp_path, seed=1, search={"trials": 1, "rungs": [4]})
    assert len({result.best.score for result in (before, after, reseeded)}) == 3
    assert searched(tmp_path, search={"trials": 1, "rungs": [4]}) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_whose_process_dies_is_repeated(workers: int, unbroken: Searched, tmp_path: Path) -> None:
    assert searched(tmp_path, Dying(tmp_path, 2), workers=workers) == unbroken


def test_trials_whose_processes_die_three_times_fail_and_the_previous_rung_decides(unbroken: Searched, tmp_path: Path) -> None:
    result = searched(tmp_path, Dying(tmp_path, 99))
    assert result.rungs == unbroken.rungs[:1]
    assert result.best.budget == 4
    assert {(failure.budget, failure.reason) for failure in result.failures} == {
        (8, "its process was ended by SIGKILL, 3 times")
    }
    assert [failure.trial for failure in result.failures] == sorted(unbroken.rungs[0].kept)
    assert len(list(tmp_path.glob("death-*"))) == 6


def test_the_refusal_of_a_recipe_is_raised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"^no$") as raised:
        searched(tmp_path, Refusing(), workers=2)
    assert (raised.value.hint, raised.value.exit_code) == ("this way", USAGE)
    assert not multiprocessing.active_children()


def test_a_final_training_whose_processes_were_ended_is_repeated(unbroken: Searched, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="ended by SIGKILL") as raised:
        train(TRAINING, VALIDATION, SIGNATURE, settings(), Ended(), unbroken.best, tmp_path / "model", NoEvents())
    assert (raised.value.hint, raised.value.exit_code) == ("run again", UNREACHABLE)


@given(st.dictionaries(st.integers(0, 50), st.sampled_from([0.1, 0.5, 0.9]), min_size=1), st.integers(1, 9))
def test_of_equal_scores_the_lower_trial_continues(scores: dict[int, float], keep: int) -> None:
    kept_trials = halving.rung(3, scores, keep).kept
    assert len(kept_trials) == min(keep, len(scores))
    stopped = [trial for trial in scores if trial not in kept_trials]
    assert all((scores[kept_trial], -kept_trial) > (scores[other], -other) for kept_trial in kept_trials for other in stopped)
    assert halving.rung(3, dict(reversed(scores.items())), keep) == halving.rung(3, scores, keep)


def test_the_best_trial_has_its_best_budget() -> None:
    rungs = [halving.rung(3, {0: 0.5, 1: 0.9, 2: 0.9}, 2), halving.rung(9, {1: 0.9, 2: 0.8}, 1)]
    assert halving.best(rungs) == (1, 3, 0.9)
    assert halving.best([*rungs, halving.rung(27, {1: 0.95}, 1)]) == (1, 27, 0.95)


@given(st.integers(1, 99), st.integers(1, 6), st.integers(2, 9))
def test_rungs_shrink_to_one_at_least(trials: int, rungs: int, reduction: int) -> None:
    sizes = halving.sizes(trials, rungs, reduction)
    assert len(sizes) == rungs
    assert all(after >= 1 and 0 <= after * reduction - before < reduction for before, after in pairwise(sizes))


def test_the_model_is_trained_on_both_parts_and_resumes(unbroken: Searched, tmp_path: Path) -> None:
    def fit(folder: str, budget: int) -> bytes:
        best = msgspec.structs.replace(unbroken.best, budget=budget)
        model_folder = tmp_path / folder
        train(TRAINING, VALIDATION, SIGNATURE, settings(workers=2), Trees(), best, model_folder, NoEvents())
        return (model_folder / contract.MODEL).read_bytes()

    both_parts = together(TRAINING, VALIDATION)
    assert (len(both_parts), len(both_parts.values)) == (900, 900)
    alone = Trees().fit(both_parts, SIGNATURE, unbroken.best.parameters, 30, tmp_path / "alone", seed=2013)
    fit("resumed", 7)
    assert fit("resumed", 30) == fit("unbroken", 30) == alone.onnx()


def test_workers_end_with_their_parent_and_the_search_resumes(unbroken: Searched, tmp_path: Path) -> None:
    """The parent is killed as soon as the first score is stored."""
    command = [sys.executable, "-m", "tests.unit.training.search.test_search", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"scored\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(children) > 2  # two workers, and the process that starts them
    assert list(tmp_path.glob("scores/4/*.json"))
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert searched(tmp_path) == unbroken


if __name__ == "__main__":
    report = partial(print, "scored", flush=True)
    search_rows(TRAINING, settings(workers=2), Path(sys.argv[1]), lambda *_: report())
