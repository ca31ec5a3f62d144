"""The routes of the console.

A page is complete HTML. After a change of the state, browsers fetch the page again and replace the elements that differ.
"""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from model_registry.errors import RegistryError
from model_registry.oci.tags import check_channel, check_version
from scorer.console import channel_view, rendering, rollout_plan_view, views
from scorer.console.actions import ActionRunner
from scorer.console.command_lines import CommandLines
from scorer.console.http_security import CsrfTokens, StrictHeaders, form
from scorer.console.state import ConsoleState
from scorer.console.table_partitions import summarize
from scorer.console.training import view as training_view
from scorer.console.training.feed import SOURCE
from scorer.dead_letters.reasons import Reason
from scorer.rollout.controller.log_records import Verb
from scorer.settings import Settings

CHECK_SECONDS = 0.5  # between two checks for changes, for each browser
SILENCE_SECONDS = 15.0  # proxies close streams that are idle for longer
VIEWS = (
    ("/", "channel", "Rollout"),
    ("/scores", "scores", "Scores"),
    ("/flow", "throughput", "Flow"),
    ("/regions", "regions", "Regions"),
    ("/dead-letters", "dead_letters", "Dead letters"),
    ("/history", "history", "History"),
    ("/training", "training", "Training"),
)
MAX_REASON = 500
MAX_TABLE_PARTITIONS = 500  # partitions of tables that are listed


@dataclass
class Console:
    """The pages of the console.

    Attributes:
        actions: Runs actions; None if the console is read-only.
        hosts: The host names that requests may use.
        actor: The name under which actions are recorded if `user_header` is None or absent.
        user_header: The request header with the name of the user who acts.
        stopping: Returns True when open streams must end.
        clock: Returns the time in Unix seconds.
    """

    settings: Settings
    state: ConsoleState
    lines: CommandLines
    actions: ActionRunner | None
    hosts: list[str]
    actor: str
    user_header: str | None
    stopping: Callable[[], bool]
    clock: Callable[[], float] = time.time
    tokens: CsrfTokens = field(default_factory=CsrfTokens)

    @property
    def tag(self) -> str:
        """The tag or channel that the configured scorers follow."""
        return self.settings.model.tag

    def app(self) -> Starlette:
        """Return the ASGI application."""
        gets = [Route(path, getattr(self, name)) for path, name, _ in VIEWS]
        data = [Route("/data/scores", self.data), Route("/data/flow", self.data), Route("/events", self.events)]
        posts = [
            Route(f"/actions/{name}", getattr(self, name), methods=["POST"])
            for name in ("promote", "rollback", "replay", "ask")
        ]
        static = Mount("/static", StaticFiles(packages=[("scorer.console", "static")]))
        return Starlette(
            routes=[*gets, *data, *posts, static],
            middleware=[
                Middleware(StrictHeaders),
                Middleware(TrustedHostMiddleware, allowed_hosts=self.hosts, www_redirect=False),
            ],
            exception_handlers={HTTPException: self._error, RegistryError: self._error},
        )

    def channel(self, request: Request) -> Response:
        """Return the page of the followed channel, its scorers and the newest rollout."""
        now = self.clock()
        query = dict(request.query_params)
        with self.state.lock:
            view = channel_view.channel_view(self.state, self.tag, query, now)
            plan = rollout_plan_view.panel(self.state, now)
            versions = self.state.registry.versions
        revision = view.channel.revision if view.channel else 0
        commands = {
            "promote": self.lines.promote(self.tag, "VERSION", "REASON", revision),
            "rollback": self.lines.rollback(self.tag, None, "REASON", revision),
            "ask": self.lines.ask("VERB", "REASON"),
        }
        headline = channel_view.headline(view)
        return self._page(
            request,
            "channel",
            rollout=view,
            headline=headline,
            versions=versions,
            commands=commands,
            query=query,
            plan=plan,
            verbs=list(Verb),
        )

    def scores(self, request: Request) -> Response:
        """Return the page of the versions' score distributions and quality figures."""
        with self.state.lock:
            rows, comparison = views.scores(self.state, self.tag)
            qualities = views.qualities(self.state, self.clock())
            pairs = rollout_plan_view.pairs(self.state)
            notes = views.label_notes(self.state, self.clock())
        return self._page(request, "scores", rows=rows, comparison=comparison, qualities=qualities, pairs=pairs, notes=notes)

    def throughput(self, request: Request) -> Response:
        """Return the page of throughput, lag and latency."""
        now = self.clock()
        with self.state.lock:
            point = self.state.flow.points[-1] if self.state.flow.points else None
            live = len(self.state.scorers.live(now))
            canary = views.canary(self.state, self.tag)
            tables = summarize(self.state.scorers.live(now), now)[:MAX_TABLE_PARTITIONS]
        most = self.settings.batching.max_events
        return self._page(request, "throughput", point=point, live=live, most=most, canary=canary, tables=tables)

    def regions(self, request: Request) -> Response:
        """Return the page of regions and channels."""
        with self.state.lock:
            rows = views.regions(self.state, self.clock())
            registry = self.state.registry
        return self._page(request, "regions", rows=rows, channels=list(registry.channels.values()))

    def dead_letters(self, request: Request) -> Response:
        """Return the page of dead letters."""
        query = dict(request.query_params)
        with self.state.lock:
            letters, reasons = views.letters(self.state, query)
            replayed = {(each.partition, each.offset) for each in letters.rows if self.state.letters.was_replayed(each)}
            unfit = self.state.letters.unfit()
            left_out = self.state.letters.left_out()
        command = self.lines.replay(["REASON"], dry_run=False)
        return self._page(
            request,
            "dead_letters",
            letters=letters,
            reasons=reasons,
            replayed=replayed,
            command=command,
            query=query,
            unfit=unfit,
            left_out=left_out,
        )

    def history(self, request: Request) -> Response:
        """Return the page of a channel's moves."""
        query = dict(request.query_params)
        with self.state.lock:
            names, name, moves = views.history(self.state, self.tag, query)
            channel = self.state.registry.channels.get(name)
        revision = channel.revision if channel else 0
        command = self.lines.rollback(name, 4711, "REASON", revision).replace("4711", "REVISION")
        return self._page(
            request, "history", names=names, channel=channel, chosen=name, moves=moves, command=command, query=query
        )

    def training(self, request: Request) -> Response:
        """Return the page of training runs, or of one run."""
        query = dict(request.query_params)
        with self.state.lock:
            error = self.state.source_errors.get(SOURCE)
            channels = self.state.registry.channels.values()
            view = training_view.training(self.state.training, self.state.runs, channels, query, self.clock())
            shown = training_view.shown(view.run, self.lines, query) if view.run else None
        return self._page(request, "training", listing=view, shown=shown, query=query, error=error)

    def data(self, request: Request) -> Response:
        """Return the data of a chart as JSON."""
        figures = views.scores_data if request.url.path.endswith("scores") else views.flow_data
        with self.state.lock:
            values = figures(self.state)
        return Response(orjson.dumps(values), media_type="application/json")

    async def events(self, _: Request) -> Response:
        """Stream server-sent events: one after each visible change."""
        return StreamingResponse(self._changes(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _changes(self) -> AsyncIterator[bytes]:
        sent = -1
        last = time.monotonic()
        while not self.stopping():
            if self.state.sequence != sent:
                sent = self.state.sequence
                last = time.monotonic()
                yield b"event: changed\ndata: %d\n\n" % sent
            elif time.monotonic() - last > SILENCE_SECONDS:
                last = time.monotonic()
                yield b": still here\n\n"
            await asyncio.sleep(CHECK_SECONDS)

    async def promote(self, request: Request) -> Response:
        """Promote a version as requested by a form."""
        actions, given = await self._action_form(request)
        channel = check_channel(given.get("channel", ""))
        version = check_version(given.get("version", "").strip())
        actions.promote(self._actor(request), channel, version, _reason(given), _number(given, "revision"))
        return RedirectResponse("/", 303)

    async def rollback(self, request: Request) -> Response:
        """Roll a channel back as requested by a form."""
        actions, given = await self._action_form(request)
        to_revision = _number(given, "to_revision") if given.get("to_revision") else None
        channel = check_channel(given.get("channel", ""))
        actions.rollback(self._actor(request), channel, to_revision, _reason(given), _number(given, "revision"))
        return RedirectResponse("/", 303)

    async def replay(self, request: Request) -> Response:
        """Replay dead letters as requested by a form."""
        actions, given = await self._action_form(request)
        reason = given.get("reason", "")
        if reason and reason not in list(Reason):
            raise HTTPException(400, f"{reason!r} is not a reason of dead letters")
        actions.replay(self._actor(request), [reason] if reason else [], dry_run=given.get("mode") != "replay")
        return RedirectResponse("/dead-letters", 303)

    async def ask(self, request: Request) -> Response:
        """Send an operator's command to the controller of the rollout, as requested by a form."""
        actions, given = await self._action_form(request)
        if (verb := given.get("verb", "")) not in list(Verb):
            raise HTTPException(400, f"{verb[:40]!r} is not one of {', '.join(Verb)}")
        reason = _reason(given)
        with self.state.lock:
            running = copy.copy(self.state.rollouts.running)  # its step may change before the request is sent
        if running is None:
            raise HTTPException(409, "no rollout is running: `scorer rollout start CONFIG PLAN` starts one")
        if (running.id, str(running.step)) != (given.get("rollout"), given.get("step")):
            raise HTTPException(409, f"{running.id} is at step {running.step + 1} now: check it, then send the request again")
        actions.ask(self._actor(request), running, Verb(verb), reason)
        return RedirectResponse("/", 303)

    async def _action_form(self, request: Request) -> tuple[ActionRunner, dict[str, str]]:
        """Return the action runner and the fields of a form.

        Raises HTTPException if actions are not allowed or the CSRF token is wrong.
        """
        given = await form(request)
        if self.actions is None:
            raise HTTPException(403, "this console is read-only: start it with `scorer console CONFIG --allow-actions`")
        self.tokens.check(request, given.get("token", ""))
        return self.actions, given

    def _actor(self, request: Request) -> str:
        name = request.headers.get(self.user_header, "") if self.user_header else ""
        return name or self.actor

    def _page(self, request: Request, view: str, status: int = 200, **values: Any) -> Response:
        cookie, token = self.tokens.cookie_and_token(request)
        with self.state.lock:
            state = self.state
            common: dict[str, Any] = {f"{source}_error": state.source_errors.get(source) for source in ("kafka", "registry")}
            common |= {"loaded": state.loaded, "recent_actions": state.recent_actions[:3], "registry_read": state.registry.read}
        html = (
            rendering.environment()
            .get_template(f"{view}.html")
            .render(
                **common,
                **values,
                view=view,
                views=VIEWS,
                name=self.settings.name,
                tag=self.tag,
                may_act=self.actions is not None,
                source=self.settings.model.source,
                servers=self.settings.kafka.bootstrap_servers,
                token=token,
                now=self.clock(),
            )
        )
        response = HTMLResponse(html, status)
        if self.actions is not None:
            self.tokens.set_cookie(response, cookie)
        return response

    def _error(self, request: Request, error: Exception) -> Response:
        if isinstance(error, RegistryError):  # the request names a channel or version with an invalid name
            return self._page(request, "error", 400, message=f"{error}; {error.hint}")
        assert isinstance(error, HTTPException)
        message = "this page does not exist" if error.status_code == 404 else error.detail
        return self._page(request, "error", error.status_code, message=message)


def _reason(given: dict[str, str]) -> str:
    reason = " ".join(given.get("reason", "").split())
    if not reason or len(reason) > MAX_REASON:
        raise HTTPException(400, f"give a reason of at most {MAX_REASON} characters for the history")
    return reason


def _number(given: dict[str, str], name: str) -> int:
    text = given.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(400, f"{name} is not a number: {text[:40]!r}")
    return int(text)
