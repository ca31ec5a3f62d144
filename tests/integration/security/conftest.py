"""One secured broker for the whole folder, with a served model and users of every component."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scorer.rig import Rig
from tests.integration.security import rights
from tests.integration.security.broker import PASSWORD, SecuredBroker

NAME = "secured"


class Secured:
    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        (folder / "password").write_text(PASSWORD + "\n")
        self.rig = Rig(broker.administrator, folder, NAME).stocked(2, versions=2)

    def login(self, user: str, **changes: Any) -> dict[str, Any]:
        """The section `kafka.security` of a user, with a password file relative to the configuration."""
        return {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-512",
            "username": user,
            "password_file": "password",
            "ca_file": str(self.broker.certificates.ca),
        } | changes

    def mutual(self, **changes: Any) -> dict[str, Any]:
        """The section `kafka.security` of the client that has a certificate."""
        files = self.broker.certificates
        client_identity = {"certificate_file": str(files.client.certificate), "key_file": str(files.client.key)}
        return {"protocol": "SSL", "ca_file": str(files.ca), **client_identity} | changes

    def configure(self, listener: str, security: dict[str, Any]) -> Rig:
        """Configure the rig with the rights of this user only."""
        self.rig.configuration["kafka"].pop("security", None)
        self.rig.configure(kafka={"bootstrap_servers": self.broker.address(listener), "security": security})
        return self.rig

    def as_user(self, user: str) -> Rig:
        return self.configure("SCRAM", self.login(user))

    def checks(self, code: int | None = 1) -> dict[str, dict[str, Any]]:
        """The findings of `scorer check` that are not ok, by name. `code`: what it has to end with; None: with any."""
        completed = self.rig.run("scorer", "check", "scorer.yaml", "--json", code=None)
        failed_checks = {finding["check"]: finding for finding in json.loads(completed.stdout)["checks"] if not finding["ok"]}
        assert code in (None, completed.returncode), failed_checks
        return failed_checks


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A running, secured broker; every component is a user of it, and so is `<component> without <right>`."""
    with SecuredBroker(tmp_path_factory.mktemp("secured") / "certificates") as broker:
        users = {component: list(needed(NAME).values()) for component, needed in rights.COMPONENTS.items()}
        for component, needed in rights.COMPONENTS.items():
            for missing in needed(NAME):
                users[without(component, missing)] = [right for name, right in needed(NAME).items() if name != missing]
        broker.users(users)
        broker.grant({"mtls": list(rights.scorer(NAME).values())})
        secured_rig = Secured(broker, tmp_path_factory.mktemp("rig"))
        yield secured_rig
        secured_rig.rig.close()


def without(component: str, right: str) -> str:
    """The user who has every right of the component but this one."""
    return f"{component}-without-{right.replace(' ', '-')}"
