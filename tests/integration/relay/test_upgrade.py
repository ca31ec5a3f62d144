"""A relay of the base version and of the present version take over from each other."""

import pytest

from tests.integration.relay.counting import CLEAN
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support.base_version import BaseVersion


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseVersion:
    return BaseVersion(tmp_path_factory.mktemp("base"))


def copy_more(rig: RelayRig, count: int, base: BaseVersion | None) -> None:
    """Start a relay of the base version or of the present one, copy further records, and stop the relay."""
    relay = rig.start(program=base.command("publisher"), PYTHONPATH=str(base.folder)).ready() if base else rig.start().ready()
    rig.fill(count)
    rig.wait_copied(rig.written)
    assert relay.stop() == 0


@pytest.mark.debian("cc")
def test_an_upgrade_of_a_relay_and_its_rollback_continue_at_the_checkpoints(make_relay: MakeRelay, base: BaseVersion) -> None:
    rig = make_relay(lanes=2)
    rig.create(rig.source)
    for version in (base, None, base):
        copy_more(rig, 1_000, version)
    assert rig.copied() == 3_000
    assert rig.audit() == CLEAN
