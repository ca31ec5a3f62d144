"""The roles of Kafka users, the commands that each role runs, and the hints that name the role of a rejected command.

The rights of each role are in `acls.py` and deploy/rights.md. This module depends on no other module of the product.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROLES: dict[str, tuple[str, ...]] = {
    "scorer": ("scorer run", "scorer check", "scorer offsets"),
    "shadow": ("scorer run --shadow", "scorer offsets --shadow"),
    "auditor": (
        "scorer audit",
        "scorer tail",
        "scorer read",
        "scorer status",
        "scorer tables",
        "scorer judge",
        "scorer lineage",
        "scorer labels",
        "scorer compare",
        "scorer replay --dry-run",
        "scorer rescore --dry-run",
        "scorer rollout verify",
        "scorer console",
        "publisher audit --input",
    ),
    "promoter": (
        "scorer promote",
        "scorer rollback",
        "scorer rollout start",
        "scorer rollout pause",
        "scorer rollout resume",
        "scorer rollout approve",
        "scorer rollout abort",
        "scorer rollout status",
    ),
    "replayer": ("scorer replay",),
    "rescorer": ("scorer rescore",),
    "rollout-controller": ("scorer rollout run", "scorer rollout step"),
    "producer": ("scorer emit",),
    "relay": ("publisher run", "publisher check", "publisher status", "publisher checkpoint", "publisher audit"),
    "relay-inputs": ("publisher failover",),
}
"""The commands of each role. The name of a role is also the name of its Kafka user in deploy/kubernetes/kafka."""
SERVICES = frozenset({"scorer", "shadow", "rollout-controller", "relay"})
"""The roles of services. If a command has one of these roles, the user in its configuration is the user of the role."""
PAGE = "deploy/rights.md"


def role_of(arguments: Sequence[str]) -> str | None:
    """Return the name of the Kafka user (role) that needs the rights of a command; None for a command without a role.

    Args:
        arguments: the command as in `sys.argv`: the path of the program, then its arguments.
    """
    if not arguments:
        return None
    words = [Path(arguments[0]).name, *arguments[1:]]
    matches = [
        (len(command.split()), role)
        for role, commands in ROLES.items()
        for command in commands
        if _is_command(words, command.split())
    ]
    return max(matches)[1] if matches else None


def principal(username: str, role: str | None) -> str:
    """Return the user name for the grant commands in a hint, or a placeholder that the operator replaces.

    Args:
        username: the configured user name; empty if there is none, as with client certificates.
        role: the role of the command; None if no role runs it.
    """
    # For a role other than a service the result is a placeholder: the user of the current process may belong to another role,
    # and must not get the rights of `role`. For example, a scorer with the right to write to its input topics could score
    # events that it has written itself.
    if role is None or role in SERVICES:
        return username or "NAME"
    return role.upper()


def hint(grant: str, role: str | None) -> str:
    """Return a hint for a missing right: the role that has the right, then the grant.

    Args:
        grant: the grant, as an imperative clause.
        role: the role of the command; None if no role runs it.
    """
    if role is None:
        return grant
    return f"run it as the {role} ({PAGE}), or {grant}"


def running_role() -> str | None:
    """Return the role of the command that this process runs, or None if no role runs this command."""
    return role_of(sys.argv)


def _is_command(words: Sequence[str], command: Sequence[str]) -> bool:
    """Return whether a command line starts with the names in `command` and contains its options."""
    names = [word for word in command if not word.startswith("-")]
    options = set(command) - set(names)
    return list(words[: len(names)]) == names and options <= {word.partition("=")[0] for word in words}
