"""Stores: one contract (`ports`), several kinds."""

from collections.abc import Sequence

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.ports import Store
from openclaw_a2a.store.memory.store import MemoryStore
from openclaw_a2a.store.rules import ReportUpgrade


def create_store(
    kind: str,
    *,
    path: str | None,
    logs_directory: str | None = None,
    keys: Sequence[bytes] = (),
    on_upgrade: ReportUpgrade | None = None,
) -> Store:
    """A store of this kind, not opened yet; with `keys` encrypted (`store/encryption.py`).

    `logs_directory` is the directory of objective files of a json-file store, if it is not
    `objectives` next to its path; other kinds have no such files. `on_upgrade` is told when opening
    it has changed the schema that it had.

    Raises:
        SettingsInvalid: an unknown kind, or a kind that needs a path has none.
    """
    if kind == "memory":
        return MemoryStore()
    if kind not in ("json-file", "sqlite"):
        raise SettingsInvalid(
            f"store.kind is {kind!r}; it must be one of memory, json-file and sqlite"
        )
    if not path:
        raise SettingsInvalid(f"store.path is missing; a store of kind {kind} needs one")
    # Imported here: a gateway loads only the kind of store it uses.
    if kind == "json-file":
        from openclaw_a2a.store.json_file.store import JsonFileStore

        store: Store = JsonFileStore(path, logs_directory=logs_directory or None)
    else:
        from openclaw_a2a.store.sqlite.store import SqliteStore

        store = SqliteStore(path, on_upgrade)
    if keys:
        from openclaw_a2a.store.encryption import EncryptedStore

        return EncryptedStore(store, keys)
    return store
