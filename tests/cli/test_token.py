"""`token`: made once, listed without its text, revoked at once."""

from datetime import UTC, datetime, timedelta

import pytest

from openclaw_a2a.auth.tokens import TokenKind, TokenStore


def test_token_is_shown_once_and_valid_until_revoked(command, tmp_path) -> None:
    folder = tmp_path / ".openclaw-a2a"
    made = command("token", "create", "--tool", "ann")
    assert made.code == 0
    text = made.out.strip()
    assert "not shown again" in made.err
    assert TokenStore(folder).find(text.encode()).name == "ann"
    listed = command("token", "list")
    assert "ann" in listed.out
    assert text not in listed.out
    assert command("token", "revoke", "ann").out == "ann  1 revoked\n"
    assert TokenStore(folder).find(text.encode()) is None


def test_host_flag_creates_a_host_token(command, tmp_path) -> None:
    data = ("--data", str(tmp_path / "elsewhere"))
    made = command("token", "create", "--tool", "openclaw", "--host", "--json", *data).json
    assert (made["name"], made["kind"]) == ("openclaw", "host")
    tokens = TokenStore(tmp_path / "elsewhere")
    assert tokens.find(made["token"].encode()).kind is TokenKind.HOST
    (listed,) = command("token", "list", "--json", *data).json["tokens"]
    limits = {"scopes", "accounts", "agents", "expiresAt"}
    assert set(listed) == {"id", "name", "kind", "createdAt", "lastUsedAt", *limits}
    assert command("token", "list").err.startswith("Nobody has a token")
    assert command("token", "revoke", "openclaw", "--json", *data).json == {
        "name": "openclaw",
        "revoked": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("create", "--tool", "Not A Name"), 2, "error invalid-params"),
        (("create", "--tool", "operator"), 2, "another name"),
        (("create",), 2, "--tool"),
        (("revoke", "nobody"), 2, "openclaw-a2a token list"),
    ],
)
def test_failed_token_command_prints_the_next_step(command, arguments, code, says) -> None:
    done = command("token", *arguments)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_broken_token_file_is_reported_and_not_changed(command, tmp_path) -> None:
    path = tmp_path / ".openclaw-a2a" / "tokens.json"
    path.parent.mkdir()
    path.write_text("{", encoding="utf-8")
    for arguments in (("list",), ("create", "--tool", "ann"), ("revoke", "ann")):
        done = command("token", *arguments)
        assert (done.code, done.out) == (1, "")
        assert "error corrupt-record" in done.err
        assert str(path) in done.err
    assert path.read_text(encoding="utf-8") == "{"


def test_unwritable_data_folder_is_reported(command, tmp_path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = command("token", "create", "--tool", "ann", "--data", str(tmp_path / "file"))
    assert done.code == 2
    assert "error token-file" in done.err


def test_token_of_a_peer_is_limited_rotated_and_revoked_by_its_id(command, tmp_path) -> None:
    options = ("--account", "work", "--agent", "main", "--expires", "30d")
    made = command("token", "create", "bob", *options)
    assert made.code == 0
    assert "every A2A caller" in made.err
    tokens = TokenStore(tmp_path / ".openclaw-a2a")
    old = tokens.find(made.out.strip().encode())
    assert (old.name, old.accounts, old.agents) == ("bob", {"work"}, {"main"})
    assert old.expires_at - old.created_at > timedelta(days=29)
    new = command("token", "rotate", "bob", "--grace", "1h", "--json").json
    assert (new["accounts"], new["agents"], new["scopes"]) == (["work"], ["main"], ["a2a"])
    first, second = command("token", "list", "--json").json["tokens"]
    assert (first["id"], second["id"]) == (old.id, new["id"])
    assert datetime.fromisoformat(first["expiresAt"]) <= datetime.now(UTC) + timedelta(hours=1)
    assert command("token", "revoke", old.id).code == 0
    assert tokens.find(made.out.strip().encode()) is None
    ended = command("token", "revoke", new["id"])
    assert "none is admitted" in ended.err


def test_token_may_have_several_scopes(command) -> None:
    made = command("token", "create", "bob", "--scope", "a2a", "--scope", "tools", "--json").json
    assert (made["scopes"], made["kind"]) == (["a2a", "tools"], "tool")
    assert command("token", "create", "bob", "--scope", "all").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "bob", "--tool", "ann"),
        ("create", "bob", "--host"),
        ("create", "local"),
        ("create", "bob", "--expires", "soon"),
        ("create", "bob", "--expires", "-1d"),
        ("rotate", "nobody"),
        ("rotate", "bob", "--grace", "1"),
    ],
)
def test_wrong_token_command_is_a_usage_error(command, tmp_path, arguments) -> None:
    assert command("token", *arguments).code == 2
    assert not (tmp_path / ".openclaw-a2a" / "tokens.json").exists()
