"""Adapter classes by name: those somebody registered, those built in, those of other packages."""

import importlib
import importlib.metadata
import warnings
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.model.ids import Json

ENTRY_POINTS = "openclaw_a2a.adapters"
"""The entry point group in which other distributions offer adapters, by name."""

_Class = TypeVar("_Class", bound=type)

_adapters: dict[str, type] = {}


class UnknownAdapter(LookupError):
    """There is no adapter of this name; the message lists those there are."""


class BuiltIn(msgspec.Struct, frozen=True):
    """A class that comes with this package; its module is imported when it is first used.

    `extra` is what to install when something that the module needs is missing.
    """

    module: str
    name: str
    extra: str = ""

    def load(self) -> type:
        """The class. Raises: ImportError, which names the extra."""
        try:
            return getattr(importlib.import_module(self.module), self.name)
        except ImportError as error:
            raise _missing(error, "openclaw-a2a", self.extra) from error


def register_adapter(name: str) -> Callable[[_Class], _Class]:
    """Decorates a class, so that `adapter: "<name>"` means it, in the settings and in Python.

    The class is an `AgentAdapter`, whose options are the arguments of its constructor, or an
    `Adapter` of the settings. A name that is taken already is given to the new class, with a
    warning. Raises: TypeError for what is no adapter.
    """
    if not isinstance(cast("Json", name), str) or not name:
        raise TypeError('An adapter is registered by name: write @register_adapter("name").')

    def register(adapter: _Class) -> _Class:
        _check(cast("Json", adapter))
        if name in _adapters or name in BUILT_IN:
            warnings.warn(f"The adapter {name} is registered again and replaced.", stacklevel=2)
        _adapters[name] = adapter
        return adapter

    return register


def unregister_adapter(name: str) -> None:
    """Forget what was registered under this name; a built-in adapter of that name is back."""
    _adapters.pop(name, None)


def registered_adapters() -> frozenset[str]:
    """The names that were registered, without those built in or offered by other packages."""
    return frozenset(_adapters)


def _check(adapter: Json) -> None:
    is_class = isinstance(adapter, type)
    is_adapter = is_class and issubclass(adapter, AgentAdapter)
    if not is_adapter and not (is_class and hasattr(cast("Json", adapter), "from_options")):
        raise TypeError(f"{adapter!r} is no adapter; register a class that inherits AgentAdapter.")


def adapter_names() -> tuple[str, ...]:
    """The names that can be loaded, sorted."""
    offered = importlib.metadata.entry_points(group=ENTRY_POINTS).names
    return tuple(sorted({*_adapters, *BUILT_IN, *offered}))


def find_adapter(name: str, *, built_in: Mapping[str, BuiltIn] | None = None) -> type:
    """The class of this name: registered, else built in, else offered by another distribution.

    Raises: UnknownAdapter, ImportError, and whatever its module raises when it is imported.
    """
    if name in _adapters:
        return _adapters[name]
    own = (BUILT_IN if built_in is None else built_in).get(name)
    if own is not None:
        return own.load()
    for offered in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
        return _load(offered)
    known = ", ".join(adapter_names())
    raise UnknownAdapter(f"there is no adapter {name}; known: {known}")


def _load(offered: importlib.metadata.EntryPoint) -> type:
    try:
        return offered.load()
    except ImportError as error:
        package = offered.dist.name if offered.dist is not None else offered.module
        raise _missing(error, package, ",".join(offered.extras)) from error


def _missing(error: ImportError, package: str, extra: str) -> ImportError:
    """The error with what to install; a package without an extra has to be whole by itself."""
    wanted = f"{package}[{extra}]" if extra else package
    return ImportError(f"{error}; install it with: pip install '{wanted}'", name=error.name)


BUILT_IN: Mapping[str, BuiltIn] = {
    "callable": BuiltIn("openclaw_a2a.agents.callable_adapter", "CallableAdapter"),
    "command": BuiltIn("openclaw_a2a.agents.command", "CommandAgent"),
    "echo": BuiltIn("openclaw_a2a.agents.echo", "EchoAgent"),
    "openclaw": BuiltIn("openclaw_a2a.agents.openclaw_cli", "OpenClawCliAgent"),
    "openclaw-gateway": BuiltIn("openclaw_a2a.agents.openclaw_gateway", "OpenClawGatewayAgent"),
}
"""What the settings know without anybody's help."""
