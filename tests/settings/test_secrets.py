"""Peers and their tokens: from references and hashes, and never shown."""

import hashlib
import json
import pickle
from pathlib import Path

import msgspec
import pytest

from openclaw_a2a.settings import Secret, describe_settings, effective_settings

TOKEN = "a-token-that-nobody-must-see"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
PEERS = "channels.a2a.security.peers"


def with_peers(peers: object) -> dict[str, object]:
    return {"channels": {"a2a": {"security": {"peers": peers}}}}


@pytest.mark.parametrize("reference", ["env:T", "file:token.txt", f"sha256:{DIGEST.upper()}"])
@pytest.mark.requirement("security.bearer")
def test_every_kind_of_reference_gives_the_same_secret(load, home: Path, reference: str) -> None:
    (home / "token.txt").write_text(f"{TOKEN}\n", encoding="utf-8")
    values = with_peers({"alice": {"tokens": [reference]}})
    peers = load(values, environ={"T": TOKEN}).settings.peers
    (secret,) = peers["alice"].tokens
    assert secret == Secret.from_text("any source", TOKEN)
    assert secret != Secret.from_text("any source", TOKEN + "x")
    assert secret.digest.hex() == DIGEST


def test_several_tokens_are_valid_at_once(load) -> None:
    values = with_peers({"alice": {"tokens": ["env:OLD", "env:NEW"]}})
    peers = load(values, environ={"OLD": "o" * 20, "NEW": "n" * 20}).settings.peers
    assert [secret.source for secret in peers["alice"].tokens] == ["env:OLD", "env:NEW"]


def test_a_literal_token_is_an_error_with_the_fix(problems) -> None:
    found = problems(with_peers({"alice": {"tokens": [TOKEN, f"sha256:{TOKEN}", "env:", 3]}}))
    assert set(found) == {f"{PEERS}.alice.tokens[{index}]" for index in range(4)}
    message = found[f"{PEERS}.alice.tokens[0]"].message
    assert all(hint in message for hint in ("env:NAME", "file:PATH", "sha256:", "openssl dgst"))
    assert TOKEN not in str(found)


def test_unresolvable_references_are_errors_that_name_them(problems, home: Path) -> None:
    (home / "empty").write_text(" \n", encoding="utf-8")
    (home / "binary").write_bytes(b"\xff\xfe")
    tokens = ["env:MISSING", "file:/no/such", "file:empty", "file:.", "file:\0", "file:binary"]
    found = problems(
        with_peers({"alice": {"tokens": [*tokens, "env:BLANK"]}}), environ={"BLANK": ""}
    )
    assert len(found) == len(tokens) + 1
    assert "MISSING" in found[f"{PEERS}.alice.tokens[0]"].message
    assert "/no/such" in found[f"{PEERS}.alice.tokens[1]"].message


@pytest.mark.parametrize("tokens", [[], None, "env:T", {}])
def test_a_peer_needs_a_list_of_tokens(problems, tokens: object) -> None:
    assert set(problems(with_peers({"a": {"tokens": tokens}}))) == {f"{PEERS}.a.tokens"}


@pytest.mark.parametrize(
    "name", ["local", "operator", "gateway", "anon", "obj", "call", "Alice", "", ".a", "x" * 65]
)
def test_some_names_are_not_for_peers(problems, name: str) -> None:
    found = problems(with_peers({name: {"tokens": [f"sha256:{DIGEST}"]}}))
    assert [problem.keyword for problem in found.values()] == ["name"]


def test_two_peers_cannot_share_a_token(problems) -> None:
    values = with_peers({"a": {"tokens": ["env:T"]}, "b": {"tokens": [f"sha256:{DIGEST}"]}})
    found = problems(values, environ={"T": TOKEN})
    assert set(found) == {f"{PEERS}.b.tokens"}
    assert TOKEN not in str(found)
    assert DIGEST not in str(found)


def test_a_short_token_is_a_warning_without_the_token(load) -> None:
    loaded = load(with_peers({"a": {"tokens": ["env:T"]}}), environ={"T": "swordfish"})
    (warning,) = loaded.warnings
    assert warning.path == f"{PEERS}.a.tokens[0]"
    assert "swordfish" not in warning.message


def test_tokens_open_the_bind_to_other_machines(load) -> None:
    values = {"server": {"host": "0.0.0.0"}, **with_peers({"a": {"tokens": ["env:T"]}})}
    settings = load(values, environ={"T": TOKEN}).settings
    assert not settings.is_open


def test_a_secret_is_shown_nowhere(load) -> None:
    values = with_peers({"a": {"tokens": ["env:T"]}, "b": {"tokens": ["sha256:" + "0" * 64]}})
    loaded = load(values, environ={"T": TOKEN})
    (secret,) = loaded.settings.peers["a"].tokens
    shown = [repr(loaded), str(loaded), f"{secret}", repr(secret), json.dumps(repr(secret))]
    shown.append(json.dumps(effective_settings(loaded.settings)))
    shown.append(str(describe_settings(loaded.settings, loaded.origins)))
    for text in shown:
        assert TOKEN not in text
        assert DIGEST not in text
        assert "0" * 64 not in text
    for write in (pickle.dumps, json.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(secret)


def test_secrets_are_equal_by_their_token(load) -> None:
    assert Secret.from_text("env:A", TOKEN) == Secret("sha256", bytes.fromhex(DIGEST))
    assert Secret.from_text("env:A", TOKEN) != Secret.from_text("env:A", "other")
    assert Secret.from_text("env:A", TOKEN) != TOKEN
