"""The hosts that requests to one registry may reach."""

import httpx
import pytest

from model_registry.errors import Corrupt
from model_registry.stores.base import StoreOptions
from model_registry.stores.http_client import OciClient, OciResponse
from model_registry.stores.retry import Timing

PAGE = "https://registry.example.com/v2/team/x/tags/list?n=2"


@pytest.mark.parametrize(
    ("link", "following"),
    [
        ('</v2/team/x/tags/list?n=2&last=b>; rel="next"', "n=2&last=b"),
        ("</v2/team/x/tags/list?n=2&last=b>; rel=next", "n=2&last=b"),
        ('<https://registry.example.com/v2/team/x/tags/list?last=b>; rel="next"', "last=b"),
        ('<http://registry.example.com/v2/team/x/tags/list?last=b>; rel="next"', "last=b"),
        ('<?last=a>; rel="prev", <?last=b>; rel="next"', "last=b"),
        ('<?last=b>; rel="next"; title="more", <?last=z>; rel="last"', "last=b"),
        ('</v2/team/x/tags/list?next_page=gAA%3D%3D&n=50>; rel="next"', "next_page=gAA%3D%3D&n=50"),
        ('<?last=z>; rel="last"', None),
        ("", None),
    ],
)
def test_the_next_page_is_selected_among_links_of_any_scheme(link: str, following: str | None) -> None:
    """Registries behind a proxy that ends TLS link to http (pulp_container 220); links may be several (RFC 8288)."""
    client = OciClient("registry.example.com", StoreOptions(), Timing())
    page = client.next_page(OciResponse(200, httpx.Headers({"Link": link}), httpx.URL(PAGE), b""))
    assert page == (None if following is None else httpx.URL(PAGE).copy_with(query=following.encode()))
    elsewhere = httpx.Headers({"Link": '<https://registry.example.org/?last=b>; rel="next"'})
    with pytest.raises(Corrupt, match=r"next page of its list at another host, registry\.example\.org"):
        client.next_page(OciResponse(200, elsewhere, httpx.URL(PAGE), b""))
