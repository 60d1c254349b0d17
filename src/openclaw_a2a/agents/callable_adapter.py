"""Any Python function as an adapter."""

import importlib
import inspect
from collections.abc import Callable

from openclaw_a2a.agents.adapter import AdapterMetadata
from openclaw_a2a.agents.callable import CallableAgent
from openclaw_a2a.agents.view import AgentView
from openclaw_a2a.model.ids import Json


class CallableAdapter(AgentView):
    """Answers with what a function returns or yields; see `CallableAgent` for what that may be.

    `function` is a function, or where to find one (`"package.module:name"`). It may be plain,
    async, or a generator of either kind, which streams.
    """

    def __init__(
        self, function: Callable[..., Json] | str, name: str = "", description: str = ""
    ) -> None:
        found = _find(function) if isinstance(function, str) else function
        self._is_generator = _is_generator(found)
        shown = name or getattr(found, "__name__", type(found).__name__)
        about = description or (inspect.getdoc(found) or "").partition("\n")[0]
        super().__init__(CallableAgent(found), AdapterMetadata(name=shown, description=about))

    def supports_streaming(self) -> bool:
        """True when the function is a generator."""
        return self._is_generator


def _find(place: str) -> Callable[..., Json]:
    module, _, name = place.partition(":")
    if not module or not name:
        raise ValueError(f'function {place!r} is no place; write "package.module:name"')
    found: Json = importlib.import_module(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    if callable(found):
        return found
    raise ValueError(f"function {place!r} is not there, or cannot be called")


def _is_generator(function: Callable[..., Json]) -> bool:
    called = type(function).__call__  # of an object that can be called like a function
    return any(
        inspect.isasyncgenfunction(one) or inspect.isgeneratorfunction(one)
        for one in (function, called)
    )
