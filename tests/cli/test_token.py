"""`token`: made once, listed without its text, revoked at once."""

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
