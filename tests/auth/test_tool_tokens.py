"""Tool tokens: shown once, stored hashed, valid until they are revoked."""

import stat
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.auth.peers import Credentials
from openclaw_a2a.auth.principal import Principal, Scope
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.auth.tool_tokens import OPERATOR_CALLER, ToolAuthenticator, ToolCaller
from openclaw_a2a.http.asgi import HeadFacts
from openclaw_a2a.model.errors import (
    CorruptRecord,
    InsufficientScope,
    InvalidParams,
    Overloaded,
    Unauthenticated,
)

DAMAGED_DIGEST = (
    b'{"tokens": [{"name": "ann", "sha256": "x", "createdAt": "2026-01-01T00:00:00Z"}]}'
)
LOCAL, REMOTE = "127.0.0.1", "192.0.2.7"
ANYBODY = st.dictionaries(
    st.sampled_from([b"authorization", b"x-openclaw-session-key", b"x-openclaw-agent-id"]),
    st.binary(max_size=80) | st.binary(max_size=40).map(lambda tail: b"Bearer " + tail),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tokens.json"


@dataclass
class FakeRequest:
    headers: dict[bytes, bytes]
    client: str | None = LOCAL
    facts: HeadFacts = field(default_factory=HeadFacts)

    @property
    def client_host(self) -> str | None:
        return self.client

    @property
    def server_port(self) -> int | None:
        return 9900

    def has_repeated(self, *names: bytes) -> bool:
        return False


def headers(token: str, **more: str) -> dict[bytes, bytes]:
    said = {f"x-openclaw-{key.replace('_', '-')}": value for key, value in more.items()}
    said["authorization"] = f"Bearer {token}"
    return {key.encode(): value.encode() for key, value in said.items()}


def test_a_token_is_valid_in_every_process_until_it_is_revoked(path) -> None:
    mine, theirs = TokenStore(path.parent), TokenStore(path.parent)
    first, second = mine.create("ann"), mine.create("ann", TokenKind.HOST)
    other = theirs.create("bob")
    assert [theirs.find(text.encode()).name for text in (first, second, other)] == [
        "ann",
        "ann",
        "bob",
    ]
    assert [token.kind for token in mine.list_tokens()] == [
        TokenKind.TOOL,
        TokenKind.HOST,
        TokenKind.TOOL,
    ]
    assert mine.revoke("ann") == 2
    assert theirs.find(first.encode()) is None
    assert theirs.find(other.encode()).name == "bob"
    assert mine.revoke("ann") == 0


@pytest.mark.requirement("remote.tool.tokens")
def test_the_file_is_private_and_holds_no_token(path) -> None:
    text = TokenStore(path.parent).create("ann")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = sorted(path.parent.iterdir())
    assert [one.name for one in files if "audit" not in one.name] == ["tokens.json"]
    for file in files:
        content = file.read_text(encoding="utf-8")
        assert text not in content
        assert text.removeprefix("oca_tool_") not in content


@pytest.mark.parametrize("name", ["", "Ann", "a b", "-a", "a" * 65, "ä", "../a", "operator", "a\n"])
def test_an_invalid_name_is_refused(path, name: str) -> None:
    with pytest.raises(InvalidParams):
        TokenStore(path.parent).create(name)
    assert not path.exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", DAMAGED_DIGEST, b'{"tokens": 1}', b'{"tokens": [{}]}', b"\xff"]
)
def test_with_a_damaged_file_no_token_is_accepted(path, content: bytes) -> None:
    text = TokenStore(path.parent).create("ann")
    path.write_bytes(content)
    tokens = TokenStore(path.parent)
    for use in (
        tokens.list_tokens,
        lambda: tokens.find(text.encode()),
        lambda: tokens.create("b"),
    ):
        with pytest.raises(CorruptRecord):
            use()
    assert path.read_bytes() == content


@pytest.mark.requirement("remote.tool.session")
def test_only_a_host_token_may_name_agent_and_session(path) -> None:
    tokens = TokenStore(path.parent)
    plain, host = tokens.create("ann"), tokens.create("plugin", TokenKind.HOST)
    authenticator = ToolAuthenticator(Credentials(tokens=tokens), max_calls=1)
    said = {"session_key": "agent:main:größe", "agent_id": "main"}
    assert authenticator.identify(FakeRequest(headers(plain, **said))) == ToolCaller(
        "ann", owner="tool:ann"
    )
    assert authenticator.identify(FakeRequest(headers(host, **said), REMOTE)) == ToolCaller(
        "plugin", agent_id="main", session_key="agent:main:größe", owner="tool:plugin"
    )
    assert authenticator.identify(FakeRequest(headers(host))) == ToolCaller(
        "plugin", owner="tool:plugin"
    )
    odd = {b"authorization": f"bearer  {host} ".encode(), b"x-openclaw-agent-id": b"\xff"}
    assert authenticator.identify(FakeRequest(odd)) == ToolCaller("plugin", owner="tool:plugin")
    long = headers(host, session_key="x" * 2000, agent_id="a\x7fb")
    assert authenticator.identify(FakeRequest(long)) == ToolCaller("plugin", owner="tool:plugin")


def test_a_limited_host_token_speaks_for_its_agents_only(path) -> None:
    tokens = TokenStore(path.parent)
    host = tokens.create("plugin", TokenKind.HOST, agents=["main"])
    authenticator = ToolAuthenticator(Credentials(tokens=tokens), max_calls=1)
    right = headers(host, agent_id="main", session_key="agent:main:x")
    assert authenticator.identify(FakeRequest(right)).agent_id == "main"
    for said in (
        {},
        {"agent_id": "other"},
        {"agent_id": "main", "session_key": "agent:other:x"},
        {"agent_id": "main", "session_key": "AGENT:Other:x"},
        {"agent_id": "main", "session_key": "somewhere"},
    ):
        with pytest.raises(InsufficientScope):
            authenticator.identify(FakeRequest(headers(host, **said)))


def test_limits_that_tools_and_the_operator_do_not_know_make_a_token_invalid_there(path) -> None:
    tokens = TokenStore(path.parent)
    for kind, limits in (
        (TokenKind.TOOL, {"agents": ["main"]}),
        (TokenKind.TOOL, {"accounts": ["work"]}),
        (TokenKind.HOST, {"accounts": ["work"]}),
        (TokenKind.PEER, {"agents": ["main"], "scopes": [Scope.A2A, Scope.ADMIN]}),
    ):
        with pytest.raises(InvalidParams):
            tokens.create("ann", kind, **limits)
    limited = Principal("ann", frozenset(Scope), agents=frozenset({"main"}))
    for scope in (Scope.TOOLS, Scope.ADMIN, Scope.DASHBOARD):
        with pytest.raises(InsufficientScope):
            limited.check_scope(scope)


def test_the_operator_token_is_accepted_from_the_own_machine_only(path) -> None:
    authenticator = ToolAuthenticator(Credentials(), max_calls=1, operator="its-token")
    assert authenticator.identify(FakeRequest(headers("its-token"))) is OPERATOR_CALLER
    proxied = {**headers("its-token"), b"forwarded": b"for=192.0.2.7"}
    for request in (
        FakeRequest(headers("its-token"), REMOTE),
        FakeRequest(headers("its-token"), None),
        FakeRequest(proxied),
    ):
        with pytest.raises(Unauthenticated):
            authenticator.identify(request)


@given(ANYBODY, st.sampled_from([LOCAL, REMOTE, None]))
def test_no_request_without_a_valid_token_is_accepted(
    path, said: dict[bytes, bytes], client: str | None
) -> None:
    tokens = TokenStore(path.parent)
    if not path.exists():
        tokens.create("ann", TokenKind.HOST)
    with pytest.raises(Unauthenticated):
        ToolAuthenticator(Credentials(tokens=tokens), max_calls=1, operator="its").identify(
            FakeRequest(said, client)
        )


def test_concurrent_calls_are_limited_per_caller(path) -> None:
    limited = ToolAuthenticator(Credentials(), max_calls=2)
    ann, bob = ToolCaller("ann"), ToolCaller("bob")
    refused = pytest.raises(Overloaded)
    with limited.admit(ann), limited.admit(ann), limited.admit(bob), refused, limited.admit(ann):
        pass
    with limited.admit(ann), limited.admit(ann):
        pass
