"""The verb `prune`."""

from typing import TYPE_CHECKING, Annotated

import typer

from model_registry.commands.options import Access, Json, Repo

if TYPE_CHECKING:
    from model_registry.channels.prune import Plan

KeepRevisions = Annotated[int, typer.Option(metavar="N", help="Moves of each channel that stay, with what they name.", min=1)]
Keep = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Versions that stay anyway: '2.*'; repeatable.")]
Unpromoted = Annotated[bool, typer.Option("--unpromoted", help="Versions that no channel ever named go too.")]
Grace = Annotated[float, typer.Option(help="In a folder: content younger than this stays; a push may be under way.", min=0)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go; delete nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Delete without asking; scripts must say so.")]


def prune(
    access: Access,
    repo: Repo,
    keep_revisions: KeepRevisions = 10,
    keep: Keep = None,
    unpromoted: Unpromoted = False,
    grace_minutes: Grace = 60.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete the versions that no channel names, nor any of its last moves, with their signatures. Asks before it does."""
    from model_registry.channels import prune as pruning
    from model_registry.commands import output

    store, _ = access.open(repo)
    found = pruning.survey(store)
    plan = pruning.plan(found, pruning.Rules(keep_revisions, keep or [], unpromoted))
    sizes = pruning.sizes(store, plan)
    manifests = pruning.manifests(store, plan)
    freed: int | None = 0
    if not dry_run and manifests:
        if not yes:
            _ask(_text(plan, sizes, True, None))
        freed = store.delete(manifests, expect=found.tags, grace_seconds=60 * grace_minutes)
    rows = [{"version": tag, "digest": digest, "size": sizes[tag]} for tag, digest in sorted(plan.versions.items())]
    value = {"dry_run": dry_run, "versions": rows, "history": sorted(plan.history), "manifests": len(manifests), "freed": freed}
    output.show(json, value, _text(plan, sizes, dry_run, freed))


def _ask(text: str) -> None:
    """Have a person agree. Raises BadReference where there is none to ask, Refused where the answer is no."""
    import sys

    from model_registry.errors import BadReference, Refused

    if not sys.stdin.isatty():
        raise BadReference("prune deletes for good, and there is no terminal to ask on", "look with --dry-run, then say --yes")
    typer.echo(text, err=True)
    if not typer.confirm("Delete them for good?", err=True):
        raise Refused("nothing was deleted")


def _text(plan: "Plan", sizes: dict[str, int], dry_run: bool, freed: int | None) -> str:
    from model_registry.commands import output

    done = "would be deleted" if dry_run else "deleted"
    rows = [[tag, output.short(digest), sizes[tag]] for tag, digest in sorted(plan.versions.items())]
    text = output.table(["version", "digest", "bytes"], rows) + "\n" if rows else ""
    text += f"{done}: {len(plan.versions)} versions, {len(plan.history)} history entries"
    if dry_run:
        return text
    return text + (f"; {freed} bytes freed" if freed is not None else "; the registry's garbage collection frees the space")
