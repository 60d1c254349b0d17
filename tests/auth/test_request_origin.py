"""Host, Origin, X-Forwarded-For and the address of a client, whatever they say."""

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openclaw_a2a.auth.request_origin import OwnAddresses, TrustedProxies, is_loopback_client
from openclaw_a2a.http.asgi import AsgiMessage, AsgiRequest, HttpRequest
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.url_policy import NO_PORT, parse_authority

PORT = 9900
OWN_NAMES = ("localhost", "127.0.0.1", "::1", "agents.example.org")
Headers = Sequence[tuple[bytes, bytes]]


async def _receive() -> AsgiMessage:
    raise AssertionError("nobody reads")


async def _send(message: AsgiMessage) -> None:
    raise AssertionError("nobody answers")


def request(headers: Headers, client: str | None = "127.0.0.1") -> HttpRequest:
    """A request with these lines."""
    scope = {
        "method": "GET",
        "path": "/",
        "headers": list(headers),
        "client": None if client is None else (client, 40000),
        "server": ("127.0.0.1", PORT),
    }
    return AsgiRequest(scope, _receive, _send)


def forwarded(*lines: str, client: str | None) -> HttpRequest:
    return request([(b"x-forwarded-for", line.encode("latin-1")) for line in lines], client)


@pytest.mark.parametrize(
    ("client", "lines", "expected"),
    [
        ("203.0.113.1", ["192.0.2.1"], "203.0.113.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.1, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.1, 192.0.2.1", "10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1", ""], "192.0.2.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1, nonsense, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["\xff\xfe"], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        (None, ["192.0.2.1"], None),
        ("socket", ["192.0.2.1"], "socket"),
    ],
)
def test_only_trusted_proxies_name_the_address_of_their_client(
    client: str | None, lines: list[str], expected: str | None
) -> None:
    asked = forwarded(*lines, client=client)
    assert TrustedProxies(["10.0.0.0/8"]).client_address(asked) == expected
    assert TrustedProxies().client_address(asked) == client


_latin = st.text(st.characters(max_codepoint=255), max_size=60)
_hops = st.lists(st.sampled_from(["10.0.0.2", "192.0.2.1", "::1", "", "x"]) | _latin, max_size=5)


@given(lines=st.lists(_hops.map(", ".join), max_size=3), client=_latin | st.just("10.0.0.1"))
def test_whatever_is_forwarded_the_address_is_the_clients_or_one_of_those_said(
    lines: list[str], client: str
) -> None:
    found = TrustedProxies(["10.0.0.0/8"]).client_address(forwarded(*lines, client=client))
    assert found is not None
    if found != client:
        assert client == "10.0.0.1" and any(found in line for line in lines)
        ipaddress.ip_address(found)


_names = st.sampled_from([*OWN_NAMES, "[::1]", "LOCALHOST.", "127.1", "evil.example"])
_authorities = (
    st.tuples(
        st.sampled_from(["", "evil.example@", "http://", "\t"]),
        _names,
        st.sampled_from(["", f":{PORT}", ":80", ":443", ":", ":1e3", ":99999", "/x", ".", "\x00"]),
    ).map("".join)
    | _latin
)


def names_us(text: str, default: int) -> bool:
    """True when a text names the gateway, by one of its names and a port of that name."""
    found = parse_authority(text, default)
    if found is None:
        return False
    name, port = found
    return name in OWN_NAMES and port in ((443,) if name == OWN_NAMES[-1] else (PORT, NO_PORT))


@given(
    hosts=st.lists(_authorities, max_size=2),
    origins=st.lists(
        st.sampled_from(["http://", "https://", ""]).flatmap(
            lambda scheme: _authorities.map(lambda text: scheme + text)
        ),
        max_size=2,
    ),
)
@example(hosts=["127.0.0.1:9900", "127.0.0.1:9900"], origins=[])
@example(hosts=["evil.example", "127.0.0.1:9900"], origins=[])
@example(hosts=["127.0.0.1:9900"], origins=["http://evil.example", ""])
def test_only_a_request_that_names_this_gateway_passes(
    hosts: list[str], origins: list[str]
) -> None:
    own = OwnAddresses("127.0.0.1", ["https://agents.example.org"])
    lines = [(b"host", one.encode("latin-1")) for one in hosts]
    lines += [(b"origin", one.encode("latin-1")) for one in origins]
    own.check(request([(b"host", b"127.0.0.1:9900")]))  # what has passed before lets nothing in
    try:
        own.check(request(lines))
    except NotAllowed:
        return
    assert len(hosts) < 2 and len(origins) < 2
    assert all(host == "" or names_us(host, NO_PORT) or host == OWN_NAMES[-1] for host in hosts)
    for origin in filter(None, origins):
        scheme, _, authority = origin.lower().partition("://")
        assert names_us(authority, {"http": 80, "https": 443}[scheme])


@given(text=_authorities | st.text(max_size=40))
def test_a_clear_name_and_port_have_one_meaning(text: str) -> None:
    found = parse_authority(text)
    if found is None:
        return
    name, port = found
    assert name and 0 <= port <= 65535
    spelled = f"[{name}]" if ":" in name else name
    assert parse_authority(spelled if port == NO_PORT else f"{spelled}:{port}") == found
    assert parse_authority(text.upper()) == found


@pytest.mark.parametrize(
    ("client", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost", True),
        ("192.0.2.7", False),
        ("testclient", False),
        ("/run/gateway.sock", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_known_loopback_address_is_local(client: str | None, is_local: bool) -> None:
    assert is_loopback_client(request([], client)) is is_local
