"""Tokens of peers and tools: scopes, expiry, rotation, and files of earlier versions."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.hostile_documents import documents, json_near

from openclaw_a2a.auth.peers import Credentials, PeerAuthenticator
from openclaw_a2a.auth.principal import LOCAL_PRINCIPAL, Principal, Scope
from openclaw_a2a.auth.request_origin import OwnAddresses
from openclaw_a2a.auth.tokens import (
    OLD_TOOL_TOKENS_FILE,
    TOKEN_USE_FILE,
    TOKENS_FILE,
    TokenKind,
    TokenStore,
    token_digest,
)
from openclaw_a2a.http.asgi import AsgiRequest, Receive, Send
from openclaw_a2a.model.errors import (
    CorruptRecord,
    InsufficientScope,
    InvalidParams,
    Unauthenticated,
)
from openclaw_a2a.settings.tokens import peers_need_tokens


def identify(tokens: TokenStore, text: bytes) -> Principal | None:
    return tokens.identify(token_digest(text))


class _Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> float:
        return self.now.timestamp()


def _request(token: str) -> AsgiRequest:
    """A request of a connection; its next requests have the same head, and know the same of it."""
    headers = [(b"host", b"localhost:9900"), (b"authorization", b"Bearer " + token.encode())]
    scope = {"method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}
    return AsgiRequest(scope, cast("Receive", None), cast("Send", None))


def test_a_token_that_is_revoked_or_expires_is_refused_for_a_head_that_was_accepted(
    tmp_path: Path,
) -> None:
    clock = _Clock()
    tokens = TokenStore(tmp_path, now=clock)
    revoked = _request(tokens.create("bob", TokenKind.PEER))
    end = clock.now + timedelta(hours=1)
    expired = _request(tokens.create("ann", TokenKind.PEER, expires_at=end))
    peers = PeerAuthenticator(Credentials(tokens=tokens), OwnAddresses())
    for _ in range(2):
        assert [peers.identify(one).name for one in (revoked, expired)] == ["bob", "ann"]
    TokenStore(tmp_path).revoke("bob")
    clock.now = end
    for one in (revoked, expired):
        with pytest.raises(Unauthenticated):
            peers.identify(one)


def test_the_own_user_needs_a_token_once_there_is_one_also_with_a_head_that_was_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    tokens = TokenStore(tmp_path)
    request = _request("x")
    peers = PeerAuthenticator(Credentials(tokens=tokens), OwnAddresses())
    assert peers.identify(request) == peers.identify(request) == LOCAL_PRINCIPAL
    tokens.create("bob", TokenKind.PEER)
    now[0] += 60
    with pytest.raises(Unauthenticated):
        peers.identify(request)


def test_a_token_is_valid_for_its_scopes_accounts_and_agents(tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path)
    text = tokens.create("bob", TokenKind.PEER, accounts=["work"], agents=["main"])
    bob = identify(tokens, text.encode())
    assert bob == Principal("bob", frozenset({Scope.A2A}), frozenset({"work"}), frozenset({"main"}))
    bob.check_account("work", "main")
    for account, agent in (("default", "main"), ("work", "other")):
        with pytest.raises(InsufficientScope):
            bob.check_account(account, agent)
    with pytest.raises(InsufficientScope):
        bob.check_scope(Scope.TOOLS)


def test_a_token_is_invalid_from_its_expiry_on(tmp_path: Path) -> None:
    clock = _Clock()
    tokens = TokenStore(tmp_path, now=clock)
    end = clock.now + timedelta(days=30)
    text = tokens.create("bob", TokenKind.PEER, expires_at=end).encode()
    clock.now = end - timedelta(seconds=1)
    assert identify(tokens, text) is not None
    clock.now = end
    assert identify(tokens, text) is None
    assert tokens.find(text) is None


def test_rotation_makes_a_like_token_and_ends_the_old_one_after_the_grace_time(
    tmp_path: Path,
) -> None:
    clock = _Clock()
    tokens = TokenStore(tmp_path, now=clock)
    end = clock.now + timedelta(days=30)
    old = tokens.create("bob", TokenKind.PEER, accounts=["work"], expires_at=end).encode()
    new = tokens.rotate("bob", grace=timedelta(hours=1)).encode()
    assert identify(tokens, old) == identify(tokens, new) is not None
    clock.now += timedelta(hours=2)
    assert identify(tokens, old) is None
    renewed = tokens.find(new)
    assert renewed is not None and renewed.expires_at is not None
    assert abs(renewed.expires_at - end) < timedelta(minutes=1)


def test_rotation_never_prolongs_the_old_token(tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path)
    end = datetime.now(UTC) + timedelta(minutes=5)
    old = tokens.create("bob", TokenKind.PEER, expires_at=end)
    tokens.rotate("bob", grace=timedelta(days=1))
    found = tokens.find(old.encode())
    assert found is not None and found.expires_at == end


def test_rotation_needs_one_token(tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path)
    with pytest.raises(InvalidParams, match="no valid token"):
        tokens.rotate("bob", grace=timedelta())
    tokens.create("bob", TokenKind.PEER)
    tokens.create("bob", TokenKind.PEER)
    first, second = tokens.list_tokens()
    with pytest.raises(InvalidParams, match=f"{first.id}, {second.id}"):
        tokens.rotate("bob", grace=timedelta())
    assert tokens.revoke(first.id) == 1
    tokens.rotate("bob", grace=timedelta())
    assert second.id in {one.id for one in tokens.list_tokens()}


def test_tokens_of_earlier_versions_stay_valid_and_move_into_the_new_file(tmp_path: Path) -> None:
    created = "2026-01-01T00:00:00Z"
    old = [
        {"name": "ann", "sha256": token_digest(b"first").hex(), "createdAt": created},
        {
            "name": "plugin",
            "sha256": token_digest(b"second").hex(),
            "createdAt": created,
            "kind": "host",
        },
    ]
    (tmp_path / "tool-tokens.json").write_text(json.dumps({"tokens": old}), encoding="utf-8")
    tokens = TokenStore(tmp_path)
    ann, plugin = identify(tokens, b"first"), identify(tokens, b"second")
    assert ann == Principal("ann", frozenset({Scope.TOOLS}))
    assert plugin is not None and plugin.is_host
    assert not tokens.peers_need_tokens()
    text = tokens.create("bob", TokenKind.PEER)
    assert not (tmp_path / "tool-tokens.json").exists()
    reopened = TokenStore(tmp_path)
    assert identify(reopened, b"first") == ann
    assert identify(reopened, text.encode()) is not None
    assert reopened.revoke("plugin") == 1
    assert identify(TokenStore(tmp_path), b"second") is None


def test_the_end_of_the_last_token_does_not_open_the_gateway(tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path)
    tokens.create("ann")
    assert not TokenStore(tmp_path).peers_need_tokens()
    tokens.create("bob", TokenKind.PEER)
    assert TokenStore(tmp_path).peers_need_tokens()
    tokens.revoke("bob")
    assert TokenStore(tmp_path).peers_need_tokens()


@pytest.mark.parametrize("name", ["local", "gateway", "anon", "obj", "call", "operator"])
@pytest.mark.parametrize("kind", TokenKind)
def test_reserved_names_get_no_token(tmp_path: Path, name: str, kind: TokenKind) -> None:
    with pytest.raises(InvalidParams, match="another name"):
        TokenStore(tmp_path).create(name, kind)
    assert not (tmp_path / TOKENS_FILE).exists()


def test_commands_at_the_same_time_lose_no_change(tmp_path: Path) -> None:
    TokenStore(tmp_path).create("gone", TokenKind.PEER)

    def change(number: int) -> None:
        tokens = TokenStore(tmp_path)
        tokens.create(f"peer-{number}", TokenKind.PEER)
        tokens.revoke("gone")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(24)))
    names = {token.name for token in TokenStore(tmp_path).list_tokens()}
    assert names == {f"peer-{number}" for number in range(24)}


async def test_last_use_is_written_apart_from_the_tokens(tmp_path: Path) -> None:
    tokens = TokenStore(tmp_path)
    text = tokens.create("bob", TokenKind.PEER).encode()
    tokens.create("idle", TokenKind.PEER)
    before = (tmp_path / TOKENS_FILE).read_bytes()
    assert identify(tokens, text) is not None
    assert tokens.last_used() == {}  # never on the way of a request
    await tokens.write_use()
    (bob, _) = tokens.list_tokens()
    assert set(TokenStore(tmp_path).last_used()) == {bob.id}
    assert (tmp_path / TOKENS_FILE).read_bytes() == before
    (tmp_path / "token-use.json").write_bytes(b"{")
    assert tokens.last_used() == {}


_MEMBERS = ["name", "sha256", "createdAt", "kind", "id", "scopes", "accounts", "agents"]
_MEMBERS += ["expiresAt", "owner"]
_MOMENTS = ["2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
_MOMENTS += ["2026-01-01T00:00:00", "2026-01-01"]
_VALUES = [*_MOMENTS, "peer", "tool", "host", "bob", "0" * 64, "aB" * 32, ["a2a"], ["tools"]]
_TOKEN = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["bob", "eve", ""]) | st.text(max_size=5),
        "sha256": st.sampled_from(["0" * 64, "aB" * 32, "\u0661" * 64, "0" * 64 + "\n"]),
        "createdAt": st.sampled_from(_MOMENTS),
    },
    optional={
        "kind": st.sampled_from(["peer", "tool", "host", 1]),
        "scopes": st.lists(st.sampled_from(["a2a", "tools", "admin"]), max_size=2),
        "expiresAt": st.sampled_from([*_MOMENTS, None, 5]),
        "accounts": st.lists(st.text(max_size=3), max_size=2) | st.none(),
        "id": st.sampled_from(["", "1234abcd"]),
        "owner": st.text(max_size=3),
    },
)


def _file_of(**more: str) -> bytes:
    token = {"name": "bob", "sha256": "0" * 64, "createdAt": "2026-01-01T00:00:00Z", **more}
    return json.dumps({"tokens": [token]}).encode()


_FILE = st.fixed_dictionaries(
    {"tokens": st.lists(_TOKEN, max_size=3)}, optional={"peersNeedTokens": st.booleans()}
) | json_near(["tokens", "peersNeedTokens", *_MEMBERS], _VALUES)


_ABSENT = st.just(b"{}")


@example(b'{"tokens":[{"name":"\xff"}]}', b"{}", b'{"\xff":1}')
@example(b'{"x":' + b"[" * 100_000, b"{}", b'{"x":' + b"[" * 100_000)
@example(_file_of(expiresAt="2026-01-01T00:00:00"), b"{}", b"{}")
@example(_file_of(expiresAt="9999-12-31T23:59:59Z"), b"{}", b"{}")
@given(documents(_FILE), _ABSENT | documents(_FILE), _ABSENT | documents(_FILE))
async def test_any_token_file_is_read_or_is_damaged_and_lets_nobody_in(
    tmp_path_factory: pytest.TempPathFactory, current: bytes, old: bytes, use: bytes
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / TOKENS_FILE).write_bytes(current)
    (folder / OLD_TOOL_TOKENS_FILE).write_bytes(old)
    (folder / TOKEN_USE_FILE).write_bytes(use)
    assert isinstance(peers_need_tokens(folder), bool)
    tokens = TokenStore(folder)
    assert isinstance(tokens.last_used(), dict)
    now = datetime.now(UTC)
    try:
        assert identify(tokens, b"a token that was never made") is None
        assert all(isinstance(one.is_valid(now), bool) for one in tokens.list_tokens())
        text = tokens.create("alice", TokenKind.PEER).encode()
    except CorruptRecord:
        with pytest.raises(CorruptRecord):
            tokens.peers_need_tokens()
        return
    assert identify(tokens, text) == Principal("alice", frozenset({Scope.A2A}))
    await tokens.write_use()
    assert tokens.last_used()
    for one in TokenStore(folder).list_tokens():
        with suppress(InvalidParams):
            tokens.rotate(one.id, grace=timedelta(hours=1))
        tokens.revoke(one.name)
