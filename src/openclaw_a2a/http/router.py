"""Routes of requests: by exact path, by pattern and by prefix."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from openclaw_a2a.model.errors import MethodNotAllowed

H = TypeVar("H")

ANY_METHOD = "*"
_Pattern = tuple[str, ...]


class Router(Generic[H]):
    """Routes requests by exact path, then by pattern, then by the longest prefix.

    In a pattern `{}` stands for one segment and `{}:verb` for a segment that ends so. `/{*}` at
    its end makes it a prefix: it stands for the rest of the path. A prefix may be registered for
    `ANY_METHOD`; it leaves out exact paths and patterns, which have no methods but their own.
    """

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], H] = {}
        """Every handler by its method and pattern, as they were added."""
        self._exact: dict[str, dict[str, H]] = {}
        self._patterns: dict[int, list[tuple[_Pattern, dict[str, H]]]] = {}
        self._prefixes: list[tuple[_Pattern, dict[str, H]]] = []

    def add_route(self, method: str, pattern: str, handler: H) -> None:
        """Register a handler. A later one for the same exact path replaces the earlier one."""
        self.routes[method, pattern] = handler
        segments = tuple(pattern.split("/"))
        if segments[-1] == "{*}":
            methods = _methods_of(self._prefixes, segments[:-1])
        elif "{}" in pattern:
            methods = _methods_of(self._patterns.setdefault(len(segments), []), segments)
        else:
            methods = self._exact.setdefault(pattern, {})
        methods[method] = handler

    def method_error(self, method: str, path: str) -> MethodNotAllowed | None:
        """The error for a method that a known path lacks; None when the path is not known."""
        methods, _ = self.find_address(path)
        if not methods:
            return None
        return method_not_allowed(method, path, methods)

    def find(self, method: str, path: str) -> tuple[H, tuple[str, ...]] | None:
        """The handler of a request and the values of its placeholders; None without a route."""
        exact = self._exact.get(path)
        methods, params = (exact, ()) if exact is not None else self.find_address(path)
        handler = methods.get(method) or methods.get(ANY_METHOD)
        return None if handler is None else (handler, params)

    def find_address(self, path: str) -> tuple[dict[str, H], tuple[str, ...]]:
        """The methods of the address of a path, and the values of its placeholders.

        The path alone decides: `{}:verb` is never a name for `{}` because of the method.
        """
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ()
        segments = path.split("/")
        for pattern, methods in self._patterns.get(len(segments), ()):
            params = _match(pattern, segments)
            if params is not None:
                return methods, params
        for prefix, methods in self._prefixes:
            if len(segments) > len(prefix):
                params = _match(prefix, segments[: len(prefix)])
                if params is not None:
                    return methods, (*params, "/".join(segments[len(prefix) :]))
        return {}, ()


def method_not_allowed(method: str, path: str, methods: Iterable[str]) -> MethodNotAllowed:
    """The error for a method that a path lacks, which has these methods."""
    address = f"/{path.lstrip('/')}"[:200]
    allowed = sorted(methods)
    text = f"{address} has no {method}; use {', '.join(allowed)}"
    return MethodNotAllowed(text, allowed=allowed)


def _methods_of(resources: list[tuple[_Pattern, dict[str, H]]], pattern: _Pattern) -> dict[str, H]:
    """The methods registered for a pattern, which is added when it is new."""
    methods = next((one for known, one in resources if known == pattern), None)
    if methods is None:
        resources.append((pattern, methods := {}))
        # `{}:verb` before `{}`, which would take the verb as a part of the name.
        resources.sort(key=lambda one: len("/".join(one[0])), reverse=True)
    return methods


def _match(pattern: _Pattern, segments: list[str]) -> tuple[str, ...] | None:
    values: list[str] = []
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted == segment:
            continue
        placeholder, _, suffix = wanted.partition("{}")
        value = segment.removesuffix(suffix)
        if placeholder or "{}" not in wanted or not value or not segment.endswith(suffix):
            return None
        values.append(value)
    return tuple(values)
