"""Tool tokens: told once, kept hashed, good until they are revoked."""

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openclaw_a2a.auth.tool_tokens import (
    OPERATOR_CALLER,
    TOOL_TOKENS_FILE,
    TokenKind,
    ToolAuthenticator,
    ToolCaller,
    ToolTokens,
)
from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, Overloaded, Unauthenticated

ANYBODY = st.dictionaries(
    st.sampled_from([b"authorization", b"x-openclaw-session-key", b"x-openclaw-agent-id"]),
    st.binary(max_size=80) | st.binary(max_size=40).map(lambda tail: b"Bearer " + tail),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / TOOL_TOKENS_FILE


def headers(token: str, **more: str) -> dict[bytes, bytes]:
    said = {f"x-openclaw-{key.replace('_', '-')}": value for key, value in more.items()}
    said["authorization"] = f"Bearer {token}"
    return {key.encode(): value.encode() for key, value in said.items()}


def test_a_token_is_known_to_everybody_who_reads_the_file_until_it_is_revoked(path) -> None:
    mine, theirs = ToolTokens(path), ToolTokens(path)
    first, second = mine.create("ann"), mine.create("ann", TokenKind.HOST)
    other = theirs.create("bob")
    assert [theirs.identify(text.encode()).name for text in (first, second, other)] == [
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
    assert theirs.identify(first.encode()) is None
    assert theirs.identify(other.encode()).name == "bob"
    assert mine.revoke("ann") == 0


@pytest.mark.requirement("remote.tool.tokens")
def test_the_file_is_private_and_holds_no_token(path) -> None:
    text = ToolTokens(path).create("ann")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_text(encoding="utf-8")
    assert text not in content
    assert text.removeprefix("oca_tool_") not in content
    assert [one.name for one in path.parent.iterdir()] == [TOOL_TOKENS_FILE]


@pytest.mark.parametrize("name", ["", "Ann", "a b", "-a", "a" * 65, "ä", "../a", "operator", "a\n"])
def test_a_name_that_is_none_is_refused(path, name: str) -> None:
    with pytest.raises(InvalidParams):
        ToolTokens(path).create(name)
    assert not path.exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"tokens": 1}', b'{"tokens": [{}]}', b"\xff"]
)
def test_a_broken_file_lets_nobody_in(path, content: bytes) -> None:
    text = ToolTokens(path).create("ann")
    path.write_bytes(content)
    tokens = ToolTokens(path)
    for use in (
        tokens.list_tokens,
        lambda: tokens.identify(text.encode()),
        lambda: tokens.create("b"),
    ):
        with pytest.raises(CorruptRecord):
            use()
    assert path.read_bytes() == content


@pytest.mark.requirement("remote.tool.session")
def test_only_a_host_says_for_whom_it_calls(path) -> None:
    tokens = ToolTokens(path)
    plain, host = tokens.create("ann"), tokens.create("plugin", TokenKind.HOST)
    keeper = ToolAuthenticator(tokens, most_calls=1)
    said = {"session_key": "agent:main:größe", "agent_id": "main"}
    assert keeper.identify(headers(plain, **said), is_from_here=True) == ToolCaller("ann")
    assert keeper.identify(headers(host, **said), is_from_here=False) == ToolCaller(
        "plugin", agent_id="main", session_key="agent:main:größe"
    )
    assert keeper.identify(headers(host), is_from_here=True) == ToolCaller("plugin")
    odd = {b"authorization": f"bearer  {host} ".encode(), b"x-openclaw-agent-id": b"\xff"}
    assert keeper.identify(odd, is_from_here=True) == ToolCaller("plugin")
    long = headers(host, session_key="x" * 2000, agent_id="a\x7fb")
    assert keeper.identify(long, is_from_here=True) == ToolCaller("plugin")


def test_the_operator_is_known_on_the_own_machine_only(path) -> None:
    keeper = ToolAuthenticator(ToolTokens(path), most_calls=1, operator="its-token")
    assert keeper.identify(headers("its-token"), is_from_here=True) is OPERATOR_CALLER
    with pytest.raises(Unauthenticated):
        keeper.identify(headers("its-token"), is_from_here=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANYBODY, st.booleans())
def test_nothing_but_a_token_opens_the_door(path, said: dict[bytes, bytes], here: bool) -> None:
    tokens = ToolTokens(path)
    if not path.exists():
        tokens.create("ann", TokenKind.HOST)
    with pytest.raises(Unauthenticated):
        ToolAuthenticator(tokens, most_calls=1, operator="its").identify(said, is_from_here=here)


def test_calls_are_counted_for_each_caller_while_they_last(path) -> None:
    keeper = ToolAuthenticator(ToolTokens(path), most_calls=2)
    ann, bob = ToolCaller("ann"), ToolCaller("bob")
    refused = pytest.raises(Overloaded)
    with keeper.admit(ann), keeper.admit(ann), keeper.admit(bob), refused, keeper.admit(ann):
        pass
    with keeper.admit(ann), keeper.admit(ann):
        pass
