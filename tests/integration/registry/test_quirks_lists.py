"""Lists of tags that deviate, by public reports on other clients."""

import json

import httpx
import pytest

from model_registry.errors import RegistryError, Unreachable
from tests.conformance.store import put_manifest
from tests.integration.registry.conftest import Start
from tests.integration.registry.hostile import Hostile, Reply, Seen
from tests.integration.registry.quirks import answering


def test_names_that_are_no_tags_are_omitted_from_the_list(start: Start, server: Hostile) -> None:
    """Artifactory lists digests (skopeo 2346), others names with a dash before them (containers/image 2771)."""
    store, registry = start()
    target = put_manifest(store, "one")
    store.move_tags({"prod": target}, expect={})
    body = json.dumps({"tags": ["prod", target.digest, "-ot-beta", "../x", ""]}).encode()
    server.script = answering(registry, lambda seen: "/tags/list" in seen.path, lambda _: Reply(body=body))
    assert store.tags() == ["prod"]


@pytest.mark.parametrize("page_limit", [100, 3, 0])
def test_a_registry_that_allows_smaller_pages_only(start: Start, server: Hostile, page_limit: int) -> None:
    """`n` above its limit is an error of distribution 3.1 (distribution 4856)."""
    store, registry = start(tags_page=3)
    target = put_manifest(store, "one")
    names = [f"v{number}" for number in range(7)]
    store.move_tags(dict.fromkeys(names, target), expect={})

    def too_many(seen: Seen) -> bool:
        return int(httpx.URL(seen.path).params.get("n", "0")) > page_limit

    invalid = Reply(400, b'{"errors": [{"code": "PAGINATION_NUMBER_INVALID", "message": "invalid number of results"}]}')
    server.script = answering(registry, too_many, lambda _: invalid)
    assert store.tags() == names


@pytest.mark.parametrize("status", [400, 404, 405, 416, 501])
def test_a_list_ends_if_the_registry_does_not_know_its_continuation(start: Start, server: Hostile, status: int) -> None:
    store, registry = start()
    target = put_manifest(store, "one")
    store.move_tags({"a": target, "b": target}, expect={})
    server.script = answering(registry, lambda seen: "last=" in seen.path, lambda _: Reply(status))
    assert store.tags() == ["a", "b"]


@pytest.mark.parametrize("status", [400, 405, 406, 416, 501])
def test_a_list_that_is_not_given_is_no_empty_list(start: Start, server: Hostile, status: int) -> None:
    store, registry = start()
    store.move_tags({"a": put_manifest(store, "one")}, expect={})
    server.script = answering(registry, lambda seen: "/tags/list" in seen.path, lambda _: Reply(status))
    with pytest.raises(RegistryError, match=f"{status} to GET of the list of tags"):
        store.tags()


@pytest.mark.parametrize("status", [400, 404, 405, 416, 501])
def test_a_page_that_is_linked_and_not_given_is_no_end_of_the_list(start: Start, server: Hostile, status: int) -> None:
    """Otherwise moves and versions would seem to be deleted."""
    store, registry = start(tags_page=2)
    target = put_manifest(store, "one")
    store.move_tags(dict.fromkeys(("a", "b", "c"), target), expect={})

    def linking(seen: Seen) -> Reply:
        if "next_page=" in seen.path:
            return Reply(status)
        reply = registry(seen)
        return Reply(200, reply.body, {"Link": '</v2/team/x/tags/list?next_page=gAA%3D%3D&n=2>; rel="next"'})

    server.script = answering(registry, lambda seen: "/tags/list" in seen.path, linking)
    with pytest.raises(RegistryError, match=f"{status} to GET of the list of tags"):
        store.tags()


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_list_that_breaks_off_is_an_error(start: Start, server: Hostile, status: int) -> None:
    store, registry = start()
    store.move_tags({"a": put_manifest(store, "one")}, expect={})
    server.script = answering(registry, lambda seen: "last=" in seen.path, lambda _: Reply(status))
    with pytest.raises(Unreachable, match=f"{status}"):
        store.tags()
