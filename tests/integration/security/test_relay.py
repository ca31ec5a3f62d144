"""A relay's users on a secured broker: every setting of both sides, the least rights of each, each one missing, a password that
ends. One broker stands for both clusters, as two users of it: the rights differ by user."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from publisher.commands.audit import count_copies
from publisher.errors import Fatal
from publisher.kafka.security import SecuritySettings
from publisher.relay.checkpoints import TOPIC_CONFIG
from publisher.relay.relay import Relay
from publisher.relay.settings import load
from publisher.relay.topic_mapping import REFUSAL_CONFIG
from tests.integration.relay.counting import CLEAN, compare
from tests.integration.relay.rig import RelayRig
from tests.integration.security import rights
from tests.integration.security.broker import PASSWORD
from tests.integration.security.conftest import Secured
from tests.integration.security.test_rights import names
from tests.support import auditor

NAME = "relayed"
COPIES = f"eu.{NAME}.scores"
SIDES = {"source": rights.relay_source, "destination": rights.relay}
MISSING = [(side, right) for side, needed in SIDES.items() for right in needed(NAME)]


@pytest.fixture(scope="module")
def rig(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayRig]:
    """A relay's surroundings: its topics are made, its users `source` and `destination` may do the least that works."""
    folder = tmp_path_factory.mktemp("relay")
    (folder / "password").write_text(PASSWORD)
    (folder / "key-password").write_text(secured.broker.certificates.key_password)
    servers = secured.broker.administrator
    rig = RelayRig((servers, servers), folder, NAME, destination={"topic": "{region}.{topic}", "create_topics": False})
    rig.create(servers)
    rig.create(servers, COPIES)
    rig.configure(refusal_topic=f"{NAME}.refusals")
    rig.create(servers, f"{NAME}.refusals", 1, **{key.replace(".", "_"): value for key, value in REFUSAL_CONFIG.items()})
    rig.create(servers, f"{NAME}.checkpoints", 1, **{key.replace(".", "_"): value for key, value in TOPIC_CONFIG.items()})
    secured.broker.users({side: list(needed(NAME).values()) for side, needed in SIDES.items()})
    yield rig
    rig.close()


def connect(rig: RelayRig, **sides: tuple[str, dict[str, Any]]) -> None:
    """Have each side come to this address with this section `security`."""
    for side, (address, security) in sides.items():
        rig.configuration[side].pop("security", None)
        rig.configure(**{side: {"bootstrap_servers": address, "security": security}})


def login(secured: Secured, user: str) -> tuple[str, dict[str, Any]]:
    return secured.broker.address("SCRAM"), secured.login(user)


def test_every_setting_of_both_sides_works(secured: Secured, rig: RelayRig, monkeypatch: pytest.MonkeyPatch) -> None:
    secured.broker.grant({"mtls": [right for needed in SIDES.values() for right in needed(NAME).values()]})
    mutual = secured.mutual(key_file=str(secured.broker.certificates.locked_key), key_password_file="key-password")
    tested = set()
    for listeners in (("NAMED", "MUTUAL"), ("MUTUAL", "CLEAR"), ("CLEAR", "NAMED")):
        for side, listener in zip(SIDES, listeners, strict=True):
            named = secured.login(side, verify_hostname=False)
            clear = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-512", "username": side}
            way = {"NAMED": named, "MUTUAL": mutual, "CLEAR": clear}[listener]
            connect(rig, **{side: (secured.broker.address(listener), way)})
            tested |= {f"{side}.{name}" for name in way}
            variable = f"PUBLISHER_{side.upper()}__SECURITY__PASSWORD"
            monkeypatch.delenv(variable, raising=False)
            if listener == "CLEAR":
                monkeypatch.setenv(variable, PASSWORD)
                tested.add(f"{side}.password")
        wrong = [check["detail"] for check in rig.json("check", code=1)["checks"] if not check["ok"]]
        assert ["are the same Kafka cluster" in detail for detail in wrong] == [True], wrong
    assert tested == {f"{side}.{name}" for side in SIDES for name in SecuritySettings.model_fields}


@pytest.mark.parametrize(("side", "right"), MISSING)
def test_a_right_that_is_missing_is_named(secured: Secured, rig: RelayRig, side: str, right: str) -> None:
    user, needed = f"{side}-without-{right.replace(' ', '-')}", SIDES[side](NAME)
    secured.broker.users({user: [allowed for name, allowed in needed.items() if name != right]})
    connect(rig, **{each: login(secured, user if each == side else each) for each in SIDES})
    with pytest.raises(Fatal) as caught:
        Relay(load(rig.path).settings, threading.Event()).run()
    assert caught.value.exit_code == 3
    assert names(f"{caught.value} {caught.value.hint}", needed[right]), caught.value


def test_a_wrong_password_is_reported_at_once_with_its_side(secured: Secured, rig: RelayRig) -> None:
    (rig.folder / "wrong").write_text("something else")
    address, security = login(secured, "source")
    connect(rig, source=(address, security | {"password_file": "wrong"}), destination=login(secured, "destination"))
    with pytest.raises(Fatal) as caught:
        Relay(load(rig.path).settings, threading.Event()).run()
    assert caught.value.exit_code == 3
    assert "source.security.username (source)" in caught.value.hint


def test_check_names_every_missing_right_at_once(secured: Secured, rig: RelayRig) -> None:
    secured.broker.users({"nobody": []})
    connect(rig, source=login(secured, "nobody"), destination=login(secured, "nobody"))
    checks = rig.json("check", code=1)["checks"]
    text = " ".join(f"{check['detail']} {check['hint']}" for check in checks if check["check"] == "rights")
    for needed in SIDES.values():
        assert all(names(text, right) for right in needed(NAME).values()), text


def test_check_names_groups_and_patterns_that_are_not_visible(secured: Secured, rig: RelayRig) -> None:
    connect(rig, source=login(secured, "source"), destination=login(secured, "destination"))
    flags = ("--set", "source.groups=[hidden]", "--set", f"source.topics=[{rig.topic}, ^nowhere]")
    checks = {check["check"]: check for check in rig.json("check", *flags, code=1)["checks"] if check["check"] != "topic"}
    assert checks["group"]["detail"].startswith("consumer group hidden is not visible to this user: ")
    assert names(f"{checks['group']['detail']} {checks['group']['hint']}", (rights.GROUP, "hidden", rights.DESCRIBE))
    details = [check["detail"] for check in rig.json("check", *flags, code=1)["checks"]]
    assert any(detail.startswith("^nowhere matches no topic of ") for detail in details), details


def audits_with_the_least_rights(secured: Secured, rig: RelayRig) -> None:
    """`publisher audit` of a relay that has copied; and without any one of its rights."""
    sides = {"source": rights.relay_source(NAME), "destination": rights.relay_auditor(NAME)}
    secured.broker.users({f"auditor-{side}": list(needed.values()) for side, needed in sides.items()})
    users = {side: f"auditor-{side}" for side in sides}
    connect(rig, **{side: login(secured, user) for side, user in users.items()})
    assert rig.json("audit")["clean"]
    for side, needed in sides.items():
        for missing, right in needed.items():
            user = f"auditor-{side}-without-{missing}"
            secured.broker.users({user: [allowed for name, allowed in needed.items() if name != missing]})
            connect(rig, **{each: login(secured, one) for each, one in (users | {side: user}).items()})
            with pytest.raises(Fatal) as caught:
                count_copies(load(rig.path).settings)
            assert caught.value.exit_code == 3
            assert names(f"{caught.value} {caught.value.hint}", right), caught.value


def test_a_relay_and_its_auditor_work_with_the_least_rights_until_its_password_ends(secured: Secured, rig: RelayRig) -> None:
    secured.broker.users({"leaver": list(rights.relay_source(NAME).values())})
    clear = secured.login("leaver", protocol="SASL_PLAINTEXT")
    del clear["ca_file"]
    connect(rig, source=(secured.broker.address("CLEAR"), clear), destination=login(secured, "destination"))
    rig.fill(400)
    relay = rig.start().ready()
    servers = rig.destination
    rig.wait_copied(400, COPIES)
    assert relay.metric('publisher_certificate_expiry_timestamp_seconds{setting="destination.security.ca_file"}') > time.time()
    assert rig.json("status")["source_answers"]
    assert compare(list(auditor.read(servers, rig.topic)), list(auditor.read(servers, COPIES))) == CLEAN
    audits_with_the_least_rights(secured, rig)
    secured.broker.forget("leaver")
    assert relay.wait() == 3, relay.said
    assert "refuses the log-in" in relay.said
    assert "source.security.username (leaver)" in relay.said
    assert PASSWORD not in relay.said
