"""Stores: one contract (`ports`), several kinds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.ports import Store
from openclaw_a2a.store.memory.store import MemoryStore
from openclaw_a2a.store.rules import Lease, ReportUpgrade

if TYPE_CHECKING:
    from openclaw_a2a.store.postgres.address import Address


def create_store(
    kind: str,
    *,
    path: str | None,
    url: str | None = None,
    password: str = "",
    schema: str = "",
    connections: int = 8,
    lease: Lease | None = None,
    logs_directory: str | None = None,
    keys: Sequence[bytes] = (),
    on_upgrade: ReportUpgrade | None = None,
) -> Store:
    """A store of this kind, not opened yet; with `keys` encrypted (`store/encryption.py`).

    A postgres store has a `url` in place of a path; its tables are in `schema`, it has at most so
    many `connections`, and with a `lease` it is shared with other gateways. `logs_directory` is the
    directory of objective files of a json-file store, if it is not `objectives` next to its path;
    other kinds have no such files. `on_upgrade` is called when opening it has upgraded its
    schema.

    Raises:
        SettingsInvalid: an unknown kind, one that lacks its path or address, or its library.
    """
    if kind == "memory":
        return MemoryStore()
    if kind not in ("json-file", "sqlite", "postgres"):
        raise SettingsInvalid(
            f"store.kind is {kind!r}; it must be one of memory, json-file, sqlite and postgres"
        )
    name, place = ("url", url) if kind == "postgres" else ("path", path)
    if not place:
        raise SettingsInvalid(f"store.{name} is missing; a store of kind {kind} needs one")
    # Imported here: a gateway loads only the kind of store it uses.
    if kind == "postgres":
        address = postgres_address(place, password=password, schema=schema)
        from openclaw_a2a.store.postgres.store import PostgresStore

        store: Store = PostgresStore(
            address, connections=connections, on_upgrade=on_upgrade, lease=lease
        )
    elif kind == "json-file":
        from openclaw_a2a.store.json_file.store import JsonFileStore

        store = JsonFileStore(place, logs_directory=logs_directory or None)
    else:
        from openclaw_a2a.store.sqlite.store import SqliteStore

        store = SqliteStore(place, on_upgrade)
    if keys:
        from openclaw_a2a.store.encryption import EncryptedStore

        return EncryptedStore(store, keys)
    return store


def postgres_address(url: str, *, password: str = "", schema: str = "") -> "Address":
    """The address of a PostgreSQL store.

    Raises:
        SettingsInvalid: it is no address of PostgreSQL, or the driver is not installed.
    """
    try:
        from openclaw_a2a.store.postgres.address import DEFAULT_SCHEMA, Address
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise SettingsInvalid(
            "a store of kind postgres needs a library: pip install 'openclaw-a2a[postgres]'"
        ) from error
    return Address(url, password, schema or DEFAULT_SCHEMA)
