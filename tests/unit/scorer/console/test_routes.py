"""The pages over HTTP without broker or registry, and the rejected requests."""

import re
from dataclasses import replace
from typing import Any
from unittest.mock import call, create_autospec

import msgspec
import pytest
from starlette.testclient import TestClient

from model_registry.channels.roles import Role
from scorer.console.actions import ActionRunner
from scorer.console.command_lines import CommandLines
from scorer.console.http_security import BODY_BYTES
from scorer.console.routes import VIEWS, Console
from scorer.console.state import Action, Channel, ConsoleState, RegistryView
from scorer.console.training.attestations import AttestationLibrary, VersionAttestations
from scorer.evaluation.label_record import Label, Unusable
from scorer.observability.status_record import TablePartitionStatus, VersionStatus
from scorer.rollout.canary_analysis.analysis_report import DROPPED
from scorer.rollout.controller.log_records import EntryKind, PlannedMove, Verb
from tests.support import recorded_runs, rollouts, trained
from tests.support.recorded_runs import RecordedEvents
from tests.unit.scorer.console import console_records
from tests.unit.scorer.minimal import minimal

PATHS = [path for path, _, _ in VIEWS]
SCRIPT = "<script>alert(1)</script>"
COVERAGES = {"champion": 0.81, "challenger": 0.79}


def recording_actions() -> Any:
    """Return a replacement of ActionRunner that records its calls."""
    return create_autospec(ActionRunner, instance=True)


def client(
    state: ConsoleState, actions: Any = None, user_header: str | None = None, now: float = console_records.NOW
) -> TestClient:
    settings, hosts = minimal(name="m"), ["127.0.0.1", "console.example.com"]
    command_lines = CommandLines(settings, "scorer.yaml")
    operator = "ann@host (console)"
    console = Console(
        settings, state, command_lines, actions, hosts, operator, user_header, stopping=lambda: True, clock=lambda: now
    )
    return TestClient(console.app(), base_url="http://127.0.0.1", follow_redirects=False)


def token(browser: TestClient, path: str = "/") -> str:
    match = re.search(r'name="token" value="([0-9a-f]{64})"', browser.get(path).text)
    assert match
    return match[1]


def busy() -> ConsoleState:
    """Return a state with records of every kind, some of them hostile."""
    state = ConsoleState(
        registry=console_records.registry(
            console_records.move(1, "1.0.0"), console_records.move(2, "2.0.0", "1.0.0", SCRIPT, restores=1)
        ),
        loaded=True,
    )
    console_records.add(state, console_records.status("m.a", "2.0.0", 2))
    console_records.add(state, console_records.status("m.b", refused={"2.0.0": SCRIPT}, aspired_revision=2, region=SCRIPT))
    for version in ("1.0.0", "2.0.0"):
        state.swaps.add(console_records.swap(0, version, 5))
        state.scores.add(console_records.score(0.5, version, decision=SCRIPT))
        for number, decision in enumerate((SCRIPT, "on time")):
            state.labelled.add(console_records.score(number / 2, version, decision=decision, id=f"{version}-{number}"))
            state.labelled.add_label(Label(f"{version}-{number}", decision))
    state.letters.add(console_records.letter(1, value=SCRIPT))
    state.letters.add(console_records.letter(2, SCRIPT))
    state.letters.add_replayed("dead", b"eu/dead/0/1")
    flips = rollouts.judgement() | {
        "decisions": [{"champion": SCRIPT, "candidate": SCRIPT, "events": 1}],
        "dropped": {SCRIPT: 1},
    }
    rules = [{"rule": SCRIPT, "margin": 0.1, "estimate": 0.2}]
    hostile = flips | {"verdict": SCRIPT, "rules": [*flips["rules"], *rules]}
    console_records.in_canary(state, controller=SCRIPT, waits=[SCRIPT], for_person=True, judgement=hostile)
    console_records.rollout(
        state,
        rollouts.entry(
            console_records.NOW, 5, EntryKind.INTENDED, 1, by=SCRIPT, why=[SCRIPT], at_ms=2**62, move=PlannedMove(3, SCRIPT)
        ),
    )
    state.training = console_records.a_run(SCRIPT)
    failed = RecordedEvents(8)
    failed.start()
    failed.fail(SCRIPT[1:7], SCRIPT)
    recorded_runs.history(failed, into=state.runs)
    state.flow.tick(state.scorers, console_records.NOW)
    state.record_action(Action(1, 2.0**40, "ann", "command", "failed", SCRIPT))
    state.record_error("kafka", SCRIPT, "hint", 0.0)
    state.record_error("registry", "unreachable", "hint", 0.0)
    return state


@pytest.mark.parametrize("path", PATHS)
def test_every_page_renders_without_data(path: str) -> None:
    answer = client(ConsoleState()).get(path)
    assert answer.status_code == 200
    assert 'class="empty"' in answer.text or "not set" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_untrusted_text_is_escaped(path: str) -> None:
    answer = client(busy(), recording_actions()).get(path)
    assert answer.status_code == 200
    assert SCRIPT not in answer.text
    assert "&lt;script&gt;alert" in answer.text
    assert not re.search(r"<[^>]+\sstyle=|<style|\son\w+=", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"


def test_untrusted_text_of_a_training_run_is_escaped() -> None:
    page = client(busy(), recording_actions()).get(f"/training?run={trained.version(1)}")
    assert page.status_code == 200
    assert SCRIPT not in page.text
    assert page.text.count("&lt;script&gt;alert") > 20
    assert not re.search(r"<[^>]+\sstyle=|<style|\son\w+=", page.text)
    assert "&lt;script&gt;" in client(busy()).get(f"/training?run={SCRIPT}").text


def test_pages_link_only_to_served_paths() -> None:
    browser = client(ConsoleState())
    links = re.findall(r'(?:src|href)="([^"#]+)"', browser.get("/").text)
    assets = {"/static/console.css", "/static/uPlot.iife.min.js", "/static/console.js"}
    assert {name.partition("?")[0] for name in links} >= assets
    for name in links:
        assert name.startswith("/")
        assert browser.get(name).status_code == 200
    assert browser.get("/static/uPlot.LICENSE").text.startswith("The MIT License")


def test_the_figures_of_the_charts_are_served() -> None:
    browser = client(busy())
    assert [line["label"] for line in browser.get("/data/scores").json()["lines"]] == ["1.0.0", "2.0.0"]
    assert len(browser.get("/data/flow").json()["columns"]["throughput"]) == 1


def test_only_allowed_hosts_are_served() -> None:
    browser = client(ConsoleState())
    assert browser.get("/", headers={"host": "console.example.com"}).status_code == 200
    assert browser.get("/", headers={"host": "rebound.example.org"}).status_code == 400


def test_read_only_console_rejects_actions() -> None:
    browser = client(busy())
    assert '<form method="post"' not in browser.get("/").text
    answer = browser.post("/actions/rollback", data={"channel": "prod", "reason": "r", "revision": "1"})
    assert answer.status_code == 403
    assert "--allow-actions" in answer.text


def test_form_of_another_site_is_rejected() -> None:
    recorded_actions = recording_actions()
    browser = client(busy(), recorded_actions)
    form = {"channel": "prod", "reason": "r", "revision": "1"}
    assert browser.post("/actions/rollback", data=form).status_code == 403
    foreign_token = token(client(busy(), recording_actions()))
    token(browser)
    assert browser.post("/actions/rollback", data={**form, "token": foreign_token}).status_code == 403
    assert browser.get("/actions/rollback").status_code == 405
    assert recorded_actions.mock_calls == []


def test_forms_become_actions() -> None:
    recorded_actions = recording_actions()
    browser = client(busy(), recorded_actions, user_header="X-Forwarded-User")
    form = {"token": token(browser), "channel": "prod", "reason": " it's  better ", "revision": "2"}
    operator = "ann@host (console)"
    assert browser.post("/actions/promote", data={**form, "version": "2.0.0"}).status_code == 303
    assert browser.post("/actions/rollback", data=form).status_code == 303
    rollback_form, as_bob = {**form, "to_revision": "1"}, {"X-Forwarded-User": "bob"}
    assert browser.post("/actions/rollback", data=rollback_form, headers=as_bob).status_code == 303
    assert browser.post("/actions/replay", data={**form, "reason": "", "mode": "replay"}).status_code == 303
    assert browser.post("/actions/replay", data={**form, "reason": "malformed", "mode": "dry-run"}).status_code == 303
    assert recorded_actions.mock_calls == [
        call.promote(operator, "prod", "2.0.0", "it's better", 2),
        call.rollback(operator, "prod", None, "it's better", 2),
        call.rollback("bob", "prod", 1, "it's better", 2),
        call.replay(operator, [], dry_run=False),
        call.replay(operator, ["malformed"], dry_run=True),
    ]


def test_rollout_page_has_steps_rules_and_requests() -> None:
    state = ConsoleState(loaded=True)
    console_records.in_canary(state)
    page = client(state).get("/").text
    assert re.search(r'<li class="now" aria-current="step"><b>canary 5 %</b>', page)
    assert "Bake time: 5 min of 15 min" in page
    assert 'max="900" value="300.0"' in page
    assert "errors: 0.001, from -0.002 to 0.004, the margin is 0.005" in page
    assert "90 % agree" in page
    assert "Reported by m.rollout/0 1.0 s ago; the analysis is 0.4 s behind" in page
    assert "scorer rollout VERB scorer.yaml" in page
    assert 'action="/actions/ask"' not in page
    assert "no score of this revision was sampled yet" in page
    assert "from 4,000 events that both scored" in client(state).get("/scores").text
    assert "same events" not in client(ConsoleState()).get("/scores").text
    assert "Each version scored different events" in client(ConsoleState()).get("/scores").text


def test_rollout_page_reports_a_silent_controller() -> None:
    state = ConsoleState(loaded=True)
    console_records.in_canary(state, at_ms=int((console_records.NOW - 400) * 1_000))
    console_records.rollout(
        state, rollouts.entry(console_records.NOW, 5, EntryKind.INTENDED, 1, at_ms=int((console_records.NOW - 300) * 1_000))
    )
    page = client(state).get("/").text
    assert "No controller has reported for 5 min." in page
    assert "The last one was m.rollout/0." in page


def test_request_is_rejected_if_the_step_has_changed() -> None:
    state, recorded_actions = ConsoleState(), recording_actions()
    browser = client(state, recorded_actions)
    form = {"token": token(browser), "rollout": "r", "step": "1", "verb": "approve", "reason": " seen "}
    assert "no rollout is running" in browser.post("/actions/ask", data=form).text
    console_records.in_canary(state, for_person=True)
    page = browser.get("/").text
    assert 'name="rollout" value="r"' in page
    assert 'name="step" value="1"' in page
    assert browser.post("/actions/ask", data={**form, "step": "0"}).status_code == 409
    assert browser.post("/actions/ask", data={**form, "rollout": "q"}).status_code == 409
    assert browser.post("/actions/ask", data={**form, "verb": "promote"}).status_code == 400
    assert browser.post("/actions/ask", data={**form, "reason": ""}).status_code == 400
    assert browser.post("/actions/ask", data={**form, "token": "0" * 64}).status_code == 403
    assert recorded_actions.mock_calls == []
    assert browser.post("/actions/ask", data=form).status_code == 303
    console_records.rollout(state, rollouts.entry(console_records.NOW, 5, EntryKind.MOVED, 2, revision=4))
    (operator, rollout, verb, reason), _ = recorded_actions.ask.call_args
    assert (operator, rollout.id, rollout.step, verb, reason) == ("ann@host (console)", "r", 1, Verb.APPROVE, "seen")


def test_training_page_shows_verdicts_and_reasons() -> None:
    state = ConsoleState(training=console_records.a_run(), loaded=True)
    page = client(state).get("/training").text
    newest, *_ = re.findall(r'<p class="lead">(.*?)</p>', page, re.DOTALL)
    assert re.search(r'<span class="pill bad">refused</span>.* auc -0\.0061: the lower bound', newest)
    assert "claimed, not verified" not in page
    assert f'href="/training?run={trained.version(1)}"' in page
    assert "auc: \u22120.0061, from \u22120.0079 to \u22120.0043, the margin is \u22120.002" in page
    page = client(state).get(f"/training?run={trained.version(1)}").text
    assert page.count("signed by training") == 3
    assert re.search(r"not worse: auc</th><td><span class=\"pill bad\">not met", page)
    assert "16 trials, 864 trees; early stopping saved 78 % of 3,888" in page
    assert f"scorer train show training.yaml {trained.run_id(1)}" in page
    assert "do not include the run elsewhere" in client(state).get("/training?run=elsewhere").text
    assert "No run matches" in client(state).get("/training?show=same").text


def test_training_page_shows_the_coverage_of_intervals_of_both_versions() -> None:
    level = {"level": 0.8, "low": 0.75, "high": 0.85}
    sides = {
        name: {"version": name, "metrics": {"rmse": 1.0}, "interval_coverage": {**level, "value": share}}
        for name, share in COVERAGES.items()
    }
    events = RecordedEvents(1)
    events.start()
    events.step("gate", {"verdict": "passed", **sides})
    page = client(ConsoleState(runs=recorded_runs.history(events), loaded=True)).get(f"/training?run={events.run}").text
    for role, share in COVERAGES.items():
        assert f"The intervals of the {role} contain a share of {share:.4f} of the outcomes (95 % interval: 0.7500 to" in page
    assert "they are meant to contain 0.8." in page


def test_verdict_without_trusted_signature_is_shown_as_claim() -> None:
    state = ConsoleState(training=console_records.a_run(key=None, change=0.0021), loaded=True)
    for path in ("/training", f"/training?run={trained.version(1)}"):
        page = client(state).get(path).text
        assert re.search(r'pill wait">passed</span> <span class="pill wait">claimed, not verified', page)
    assert "the signature is not from a trusted key" in page
    assert 'pill good">passed' not in page


def test_unreadable_attestations_are_reported_unless_the_registry_is_unavailable() -> None:
    state = ConsoleState(training=console_records.a_run())
    state.record_error("attestations", "no answer", "try", 0.0)
    assert (
        "attestations cannot be read</strong> since 1970-01-01 00:00:00Z: no answer (try)"
        in client(state).get("/training").text
    )
    state.record_error("registry", "unreachable", "hint", 0.0)
    page = client(state).get("/training").text
    assert "attestations cannot be read" not in page
    assert "The registry is unavailable" in page
    assert trained.version(1) in page


def test_many_runs_are_paged() -> None:
    versions = tuple(VersionAttestations(trained.version(number), console_records.digest("1")) for number in range(120))
    page = (
        client(ConsoleState(training=AttestationLibrary(versions, 7, read=True))).get("/training?page=3&show=not+judged").text
    )
    assert page.count('class="because"') == 20
    assert "page 3 of 3" in page
    assert "7 older versions or runs were not read" in page


@pytest.mark.parametrize(
    ("path", "wrong", "message"),
    [
        ("promote", {"version": "no version!"}, "is not a valid name of a version"),
        ("promote", {"reason": " "}, "give a reason"),
        ("promote", {"reason": "x" * 501}, "give a reason"),
        ("promote", {"channel": "../up"}, "is not a valid name of a channel"),
        ("rollback", {"revision": "-1"}, "revision is not a number"),
        ("rollback", {"to_revision": "one"}, "to_revision is not a number"),
        ("replay", {"reason": "because"}, "is not a reason"),
    ],
)
def test_invalid_action_is_rejected_with_a_message(path: str, wrong: dict[str, str], message: str) -> None:
    recorded_actions = recording_actions()
    browser = client(busy(), recorded_actions)
    form = {"token": token(browser), "channel": "prod", "version": "2.0.0", "reason": "r", "revision": "2"}
    answer = browser.post(f"/actions/{path}", data={**form, **wrong})
    assert answer.status_code == 400
    assert message in answer.text
    assert recorded_actions.mock_calls == []


def test_endless_body_is_rejected() -> None:
    browser = client(busy(), recording_actions())
    assert browser.post("/actions/replay", content=b"x" * (BODY_BYTES + 1)).status_code == 413
    assert browser.get("/nowhere").status_code == 404


def test_thousands_of_scorers_do_not_enlarge_the_page() -> None:
    state = ConsoleState(registry=console_records.registry(console_records.move(1, "1.0.0")), loaded=True)
    for number in range(1_000):
        console_records.add(state, console_records.status(f"m.{number}"))
    answer = client(state).get("/?page=3&q=m")
    assert len(answer.content) < 100_000
    assert "page 3 of 20" in answer.text
    assert 'href="/?q=m&amp;page=4"' in answer.text


def in_split(state: ConsoleState) -> None:
    """Set a canary of 5 percent, which one of two scorers has loaded and which got 1 of 4 sampled events."""
    roles = (
        Role("champion", "1.0.0", console_records.digest("1.0.0"), 95),
        Role("canary", "2.0.0", console_records.digest("2.0.0"), 5),
    )
    moves = (console_records.move(1, "1.0.0"), replace(console_records.move(2, "1.0.0", "1.0.0"), roles=roles))
    channel = Channel("prod", "1.0.0", console_records.digest("1.0.0"), 2, roles, moves)
    state.registry = RegistryView("oci:registry/m", {"prod": channel}, ("1.0.0", "2.0.0"), read=True)
    champion, canary = (VersionStatus("m", version, console_records.digest(version), 2) for version in ("1.0.0", "2.0.0"))
    console_records.add(state, console_records.status("m.a", revision=2, versions={"champion": champion, "canary": canary}))
    console_records.add(state, console_records.status("m.b", revision=2))
    for arm in ("canary", "champion", "champion", "champion"):
        state.arms.add(console_records.score(0.5, arm=arm, revision=2))
    state.flow.tick(state.scorers, console_records.NOW)


def text_of(page: str) -> str:
    """Return the text of a page on one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_the_tables_of_running_scorers_are_on_the_page_flow() -> None:
    state = ConsoleState()
    assert "Tables" not in client(state).get("/flow").text
    table_partition = TablePartitionStatus(SCRIPT, 3, 12_345, 1_000, 20, 20, 0.0, restored=True)
    console_records.add(state, console_records.status("m.a", tables=[table_partition]))
    page = client(state).get("/flow").text
    assert "12,345" in page
    assert "ready" in page
    assert SCRIPT not in page


def test_a_canary_is_shown_with_its_share_in_regions_flow_and_history() -> None:
    state = ConsoleState(loaded=True)
    in_split(state)
    browser = client(state)
    regions, flow, history = (text_of(browser.get(path).text) for path in ("/regions", "/flow", "/history"))
    by = "\N{MULTIPLICATION SIGN}"
    assert f"1.0.0 {by} 2, canary 2.0.0 with 5 % of the keys {by} 1" in regions
    assert regions.count("canary 2.0.0 with 5 % of the keys") == 2, "the region, and the channel"
    assert "Canary 2.0.0 5.0 % of the keys; 25 % of 4 sampled events" in flow
    assert "1.0.0 , canary 2.0.0 with 5 % of the keys" in history


def test_without_a_policy_a_passed_verdict_is_neither_warning_nor_success() -> None:
    library = replace(console_records.a_run(key=None, change=0.0021), trusting=False)
    for path in ("/training", f"/training?run={trained.version(1)}"):
        page = client(ConsoleState(training=library, loaded=True)).get(path).text
        assert re.search(r'pill plain">passed</span> <span class="pill plain">not verified: no policy lists keys', page)
        assert 'pill wait">' not in page
        assert 'pill good">passed' not in page


def test_excluded_answers_are_named_as_by_the_command() -> None:
    state = ConsoleState(loaded=True)
    console_records.in_canary(state, judgement=rollouts.judgement() | {"dropped": {"unsampled": 7, "foreign": 2}})
    page = text_of(client(state).get("/").text)
    assert f"Excluded: 7 {DROPPED['unsampled']}; 2 {DROPPED['foreign']}." in page


def test_dead_letters_that_cannot_be_replayed_are_counted_apart() -> None:
    state = ConsoleState(loaded=True)
    state.letters.add(console_records.letter(7))
    state.letters.add(replace(console_records.letter(8), unfit="it came from elsewhere"))
    state.letters.begin(0, 4, 7)
    page = text_of(client(state).get("/dead-letters").text)
    assert "wrong-type 1 " in page
    assert "1 dead letters cannot be replayed. They are not counted here." in page
    assert "not possible: it came from elsewhere" in page
    assert "3 older offsets were not read" in page


def test_unusable_labels_are_named_as_by_the_command() -> None:
    state = ConsoleState(loaded=True)
    for n in range(4):
        state.add_score(
            msgspec.structs.replace(console_records.score(n / 4), id=f"e{n}", decision="late" if n > 1 else "on time")
        )
    state.labelled.add_label(Label("e0", "cancelled"))
    state.labelled.unusable[Unusable.NO_ID] += 1
    page = text_of(client(state).get("/scores").text)
    assert "No sampled score has a usable label." in page
    assert "1 unknown-class: &#39;cancelled&#39; is none of the classes on time, late; check labels.value" in page
    assert "1 no-id" in page


def recorded_state() -> ConsoleState:
    """Return a state with an attested run, and records of a refused, a failed and a running run."""
    failed = RecordedEvents(3)
    failed.start()
    failed.trials(3)
    failed.trial(9, 27, {"note": SCRIPT})
    failed.fail_trial(9, f"exit code 1 {SCRIPT}", f"ValueError: {SCRIPT}")
    failed.fail("train", f"the recipe failed {SCRIPT}")
    running = RecordedEvents(4)
    running.start()
    running.join()
    running.trials(5, 40)
    state = ConsoleState(training=console_records.a_run(), loaded=True)
    recorded_runs.history(recorded_runs.refused(2), failed, running, into=state.runs)
    return state


def test_recorded_runs_are_listed_with_their_state_and_cost() -> None:
    state = recorded_state()
    now = max(run.last_seen for run in state.runs.runs.values())
    page = client(state, now=now + 1).get("/training").text
    for verdict, count in (("running", 1), ("failed", 1), ("refused", 2)):
        assert f">{verdict} <b>{count}</b>" in page
    assert "It is in the step search." in page
    assert "not attested" in page
    assert 'id="chart"' in page
    assert "cost 4 min" in page
    page = client(state, now=now + 3_600).get("/training").text
    assert "Its process ended in the step search without a report." in page


def test_page_of_a_running_run_has_its_curves_and_trials() -> None:
    state = recorded_state()
    now = max(run.last_seen for run in state.runs.runs.values())
    browser = client(state, now=now + 1)
    page = browser.get(f"/training?run={trained.version(4)}").text
    assert page.count("<polyline") == 5
    assert page.count('<tr id="trial-') == 5
    assert "auc by trees" in page
    assert "loss by trees" in browser.get(f"/training?run={trained.version(4)}&metric=loss").text
    ascending = re.findall(r'<tr id="trial-(\d+)"', browser.get(f"/training?run={trained.version(4)}&sort=score").text)
    descending = re.findall(
        r'<tr id="trial-(\d+)"', browser.get(f"/training?run={trained.version(4)}&sort=score&order=desc").text
    )
    assert (ascending[-1], descending[0]) == ("2", "2")


def test_page_of_a_failed_run_has_its_reason_and_logs_escaped() -> None:
    state = recorded_state()
    (key,) = (run.key for run in state.runs.runs.values() if run.state(0) == "failed")
    page = client(state).get(f"/training?run={key}").text
    assert SCRIPT not in page
    assert "trial 9 failed: exit code 1 &lt;script&gt;" in page
    assert "ERROR the recipe failed &lt;script&gt;" in page
    assert f"scorer train show training.yaml {key} --log" in page


def test_page_of_a_refused_run_shows_what_it_has_recorded_as_not_attested() -> None:
    page = client(recorded_state()).get(f"/training?run={trained.version(2)}").text
    assert "Nothing is attested." in page
    assert page.count("not met") == 2
    assert 'id="matrix-2"' in page
    assert "signed by" not in page
