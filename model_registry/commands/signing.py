"""The commands for signatures and attestations of versions: `keygen`, `sign`, `verify`, `attest`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from model_registry.cli_common import (
    Json,
    Keys,
    PasswordFile,
    Ref,
    champion_of,
    names_of,
    open_repository,
    print_message,
    print_result,
    trusted_keys,
)
from model_registry.errors import BadReference
from model_registry.oci import tags
from model_registry.untrusted_input.terminal_text import printable

if TYPE_CHECKING:
    from model_registry.signing.keys import PrivateKey
    from model_registry.signing.policy import Policy
    from model_registry.stores.base import Store

Key = Annotated[Path, typer.Option("--key", metavar="FILE", help="A private key created by keygen.", show_default=False)]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="The signature policy file of the scorers.", show_default=False)
]
Type = Annotated[
    str,
    typer.Option(
        "--type",
        help="The type of the attestation: slsa-provenance, test-result, evaluation, comparison, or an https:// URI.",
        show_default=False,
    ),
]


def keygen(
    prefix: Annotated[
        Path,
        typer.Argument(metavar="PREFIX", help="The path of the new files without their endings: PREFIX.key and PREFIX.pub."),
    ],
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Create a pair of keys. The private key is encrypted if there is a password. Existing files are not overwritten."""
    from model_registry.signing import keys

    password = keys.read_password(password_file)
    private, public, key = keys.generate(prefix, password)
    if password is None:
        print_message(f"{private} is not encrypted: any user who can read it can sign with it; --password-file encrypts it")
    value = {"private": str(private), "public": str(public), "fingerprint": key.fingerprint, "encrypted": password is not None}
    print_result(json, value, f"{private}\n{public}")


def sign(ctx: typer.Context, ref: Ref, key: Key, password_file: PasswordFile = None, json: Json = False) -> None:
    """Sign a version under its name, at most once with each key. `cosign verify --key` accepts the signature."""
    from model_registry.signing import signatures

    private = _private(key, password_file)
    store, target = open_repository(ctx, ref)
    digest = champion_of(store, target)
    names = names_of(store, target, digest)
    signature = signatures.sign(store, digest, private, datetime.now(UTC), names)
    value = {"digest": digest, "names": names, "signature": signature, "key": private.public().fingerprint}
    outcome = f"is signed as {' and '.join(names)}" if signature else "already has this signature of the key"
    print_result(json, value, printable(f"{digest} {outcome}"))


def verify(ctx: typer.Context, ref: Ref, key: Keys = None, policy: PolicyFile = None, json: Json = False) -> None:
    """Check that a trusted key signed a version, or that a policy allows scorers to load it; exit with code 3 if not."""
    from model_registry.signing import signatures
    from model_registry.signing.admission import PolicyAdmission
    from model_registry.signing.policy import read

    if (key is None) == (policy is None):
        raise BadReference("verify needs either --key or --policy", "for instance --key release.pub; --key may be repeated")
    trusted = trusted_keys(key)
    scorer_policy = read(policy) if policy else None
    store, target = open_repository(ctx, ref)
    digest = champion_of(store, target)
    now = datetime.now(UTC)
    name = names_of(store, target, digest)[0]
    details: dict[str, str | None] = {}
    if scorer_policy:
        gate = PolicyAdmission(scorer_policy, None)
        signer = gate.check(store, digest, name.rpartition(":")[2], now)
        details = {"comparison": gate.check_comparison(store, digest, now)}
        details |= {"move": _mover(scorer_policy, store, target.tag, now)} if scorer_policy.signed_moves else {}
        signers = [signer] if signer else []
    else:
        signers = signatures.verify(store, digest, trusted, now, name)
    text = (
        f"{digest} is signed by {', '.join(signers)}"
        if signers
        else f"{digest} is not signed; the policy requires no signature"
    )
    text += f"; it passed a comparison, attested by {details['comparison']}" if details.get("comparison") else ""
    text += f"; {target.tag} was moved to it by {details['move']}" if details.get("move") else ""
    print_result(json, {"digest": digest, "keys": signers, **details}, printable(text))


def _mover(policy: "Policy", store: "Store", tag: str | None, now: datetime) -> str | None:
    """Return the id of the policy's key that signed the last move of the channel `tag`; None if `tag` is no channel.

    Raises:
        Refused: No trusted key signed the move.
    """
    from model_registry.channels import channel, signed_move

    if not tag or not tags.revisions(store.tags(), tag):
        return None
    return signed_move.SignedMoveAdmission(policy, None).check(store, tag, channel.resolve(store, tag), now)


def attest(
    ctx: typer.Context,
    ref: Ref,
    predicate: Annotated[
        Path, typer.Option(metavar="FILE", help="The file with the statement to sign, a JSON object.", show_default=False)
    ],
    type_: Type,
    key: Key,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Sign a statement about a version's origin, tests or quality, and store it with the version."""
    from model_registry.signing import attestation

    private = _private(key, password_file)
    statement = attestation.read_predicate(predicate)
    uri = attestation.type_uri(type_)
    store, target = open_repository(ctx, ref)
    digest = champion_of(store, target)
    referrer = attestation.attest(store, digest, type_, statement, private, datetime.now(UTC))
    print_result(json, {"digest": digest, "type": uri, "attestation": referrer}, f"{uri} is attested for {digest}")


def _private(path: Path, password_file: Path | None) -> "PrivateKey":
    from model_registry.signing import keys

    return keys.read_private(path, keys.read_password(password_file))
