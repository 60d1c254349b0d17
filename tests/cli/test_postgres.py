"""The commands for a store in PostgreSQL."""

import secrets
from pathlib import Path

import pytest
from tests.postgres_server import PASSWORD, PostgresServer

from openclaw_a2a.store import create_store


@pytest.fixture
def schema() -> str:
    return f"cli_{secrets.token_hex(8)}"


def write_settings(folder: Path, server: PostgresServer, schema: str) -> Path:
    path = folder / "with-postgres.json5"
    url, password = server.url(user="gateway"), "env:DATABASE_PASSWORD"
    path.write_text(
        f'{{ store: {{ kind: "postgres", url: "{url}", password: "{password}",'
        f' schema: "{schema}" }} }}',
        encoding="utf-8",
    )
    return path


def test_db_upgrade_makes_the_tables_once(
    command, tmp_path: Path, postgres: PostgresServer, schema: str, monkeypatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    flags = ("--config", str(write_settings(tmp_path, postgres, schema)))
    plan = command("db", "upgrade", "--plan", "--json", *flags).json
    assert plan["stores"][0]["steps"][0].startswith("0001_initial")
    done = command("db", "upgrade", "--json", *flags).json
    assert done["stores"] == plan["stores"]
    assert "newest schema" in command("db", "upgrade", *flags).out


def test_the_password_is_nowhere_to_be_seen(
    command, tmp_path: Path, postgres: PostgresServer, schema: str, monkeypatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    flags = ("--config", str(write_settings(tmp_path, postgres, schema)))
    for words in (["config", "show"], ["config", "check"], ["doctor"], ["db", "upgrade"]):
        finished = command(*words, *flags)
        assert PASSWORD not in finished.out + finished.err


def test_doctor_says_what_is_wrong_with_the_database(
    command, tmp_path: Path, postgres: PostgresServer, schema: str, monkeypatch
) -> None:
    flags = ("--config", str(write_settings(tmp_path, postgres, schema)))
    monkeypatch.setenv("DATABASE_PASSWORD", "another")
    assert "refused the user gateway" in command("doctor", *flags).out
    monkeypatch.setenv("DATABASE_PASSWORD", PASSWORD)
    assert "its tables are made by the first start" in command("doctor", *flags).out


def test_a_password_in_the_address_is_refused(command) -> None:
    refused = command("up", "--store", "postgres://me:sesame@db.example/x")
    assert refused.code != 0
    assert "store.password" in refused.err
    assert "sesame" not in refused.out + refused.err


@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_db_move_copies_the_store_and_says_how_much(
    tmp_path: Path, postgres: PostgresServer, schema: str, kind: str
) -> None:
    import anyio.to_thread
    from tests.contracts.store_samples import ALICE, make_lines, put_finished

    from openclaw_a2a.cli import run
    from openclaw_a2a.ports import LogAppend

    data = tmp_path / "data"
    file = data / ("state.db" if kind == "sqlite" else "tasks")
    store = create_store(kind, path=str(file))
    await store.open()
    draft = await put_finished(store, "t-1", at=1)
    await store.logs.append_log(LogAppend("objective", "obj-1", make_lines(0, 2), after=0))
    await store.close()
    words = ["db", "move", "--from", kind, "--to", postgres.url(), "--schema", schema]
    assert await anyio.to_thread.run_sync(run, [*words, "--data", str(data)]) == 0
    moved = create_store("postgres", path=None, url=postgres.url(), schema=schema)
    await moved.open()
    found = await moved.tasks.read_task(ALICE, draft.head.id)
    assert found is not None and found.head == draft.head
    assert await moved.logs.read_log("objective", "obj-1") is not None
    await moved.close()


@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
def test_db_move_says_where_it_looked_for_a_store(
    command, tmp_path: Path, postgres: PostgresServer, schema: str, kind: str
) -> None:
    words = ("db", "move", "--from", kind, "--to", postgres.url(), "--schema", schema)
    refused = command(*words, "--data", str(tmp_path / "data"))
    assert refused.code != 0
    assert str(tmp_path / "data") in refused.err and "--from" in refused.err
