"""Where the library keeps tasks: in a store that was given, or in the file that a path names."""

from os import PathLike, fspath
from typing import cast

from openclaw_a2a.model.ids import Json
from openclaw_a2a.ports import Store
from openclaw_a2a.store import open_store


def as_store(given: Json) -> Store | None:
    """The store, not opened yet; the path of a file stands for a SQLite store. None stays None.

    Raises: TypeError for anything else.
    """
    if isinstance(given, str | PathLike):
        return open_store("sqlite", path=fspath(cast("PathLike[str]", given)))
    if given is None or hasattr(given, "read_task"):
        return cast("Store | None", given)
    raise TypeError(
        f"task_store is a {type(given).__name__}; give a store of openclaw_a2a.store, or the path"
        " of a SQLite file."
    )
