"""Finds the handler for a method and a path."""

from typing import Generic, TypeVar

H = TypeVar("H")

ANY_METHOD = "*"
_Pattern = tuple[str, ...]


class Router(Generic[H]):
    """Routes requests by exact path, then by pattern, then by the longest prefix.

    In a pattern `{}` stands for one segment and `{}:verb` for a segment that ends so. `/{*}` at
    its end makes it a prefix: it stands for the rest of the path. A prefix may be registered for
    `ANY_METHOD`.
    """

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], H] = {}
        self._patterns: dict[tuple[str, int], list[tuple[_Pattern, H]]] = {}
        self._prefixes: list[tuple[_Pattern, str, H]] = []

    def add_route(self, method: str, pattern: str, handler: H) -> None:
        """Register a handler. A later one for the same exact path replaces the earlier one."""
        segments = tuple(pattern.split("/"))
        if segments[-1] == "{*}":
            self._prefixes.append((segments[:-1], method, handler))
            self._prefixes.sort(key=lambda one: len("/".join(one[0])), reverse=True)
        elif "{}" in pattern:
            candidates = self._patterns.setdefault((method, len(segments)), [])
            candidates.append((segments, handler))
            # `{}:verb` before `{}`, which would take the verb as a part of the name.
            candidates.sort(key=lambda one: len("".join(one[0])), reverse=True)
        else:
            self._exact[method, pattern] = handler

    def find(self, method: str, path: str) -> tuple[H, tuple[str, ...]] | None:
        """The handler of a request and the values of its placeholders; None without a route."""
        handler = self._exact.get((method, path))
        if handler is not None:
            return handler, ()
        segments = path.split("/")
        for pattern, candidate in self._patterns.get((method, len(segments)), ()):
            params = _match(pattern, segments)
            if params is not None:
                return candidate, params
        for prefix, accepted, candidate in self._prefixes:
            if len(segments) > len(prefix) and accepted in (method, ANY_METHOD):
                params = _match(prefix, segments[: len(prefix)])
                if params is not None:
                    return candidate, (*params, "/".join(segments[len(prefix) :]))
        return None


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
