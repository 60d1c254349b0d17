"""Stores over a real PostgreSQL: one that all tests share, and servers that a test may stop."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.postgres_server import PostgresServer, server_folder

from openclaw_a2a.store import create_store
from openclaw_a2a.store.postgres.store import PostgresStore
from openclaw_a2a.store.rules import Lease


@pytest.fixture
async def schema(postgres: PostgresServer) -> AsyncIterator[str]:
    """A schema without rows."""
    async with postgres.borrow_schema() as schema:
        yield schema


@pytest.fixture
async def store(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresStore]:
    """An open store on the shared server."""
    store = make_store(postgres, schema)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A running server that the test may stop."""
    server = PostgresServer(server_folder(secrets.token_hex(8)))
    server.create()
    server.start()
    yield server
    server.remove()


def make_store(
    server: PostgresServer, schema: str = "", connections: int = 3, lease: Lease | None = None
) -> PostgresStore:
    """A store, not opened yet; with a lease several of them share it."""
    store = create_store(
        "postgres", path=None, url=server.url(), schema=schema, connections=connections, lease=lease
    )
    assert isinstance(store, PostgresStore)
    return store
