"""A store whose four parts are one object, so that a test can intercept any call in one place."""

from typing import Any

from openclaw_a2a.ports import Store


def find_method(store: Store, name: str) -> Any:
    """A method or attribute of the store or of one of its parts."""
    if name in ("open", "close", "check", "is_durable"):  # a part may have its own `close`
        return getattr(store, name)
    for part in (store.tasks, store.deliveries, store.records, store.logs):
        if hasattr(part, name):
            return getattr(part, name)
    return getattr(store, name)


class FlatStore:
    """Passes everything on. A subclass intercepts calls by defining a method or `__getattr__`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def tasks(self) -> Any:
        return self

    deliveries = records = logs = tasks

    def __getattr__(self, name: str) -> Any:
        return find_method(self.inner, name)
