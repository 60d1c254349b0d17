"""The A2A extension for objectives: its activation by a request, and its entry in agent cards."""

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.card import AgentExtension
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.planning.step_message import EXTENSION_URI, EXTENSION_URIS

EXTENSION_HEADERS = frozenset({b"a2a-extensions", b"x-a2a-extensions"})


def activate_extension(request: HttpRequest) -> None:
    """Echo the URIs of the extension that a request activates, in the same headers."""
    for name in sorted(EXTENSION_HEADERS):
        activated = [
            uri for uri in dict.fromkeys(request.header_items(name)) if uri in EXTENSION_URIS
        ]
        if activated:
            request.response_headers.append((name, ", ".join(activated).encode("ascii")))


def is_extension_activated(request: HttpRequest) -> bool:
    """True when the request activates the extension."""
    return any(name in EXTENSION_HEADERS for name, _ in request.response_headers)


def objectives_extension(*, max_plans: int, max_tasks: int, is_persistent: bool) -> AgentExtension:
    """The extension in an agent card."""
    params: JsonObject = {
        "maxPlansPerObjective": max_plans,
        "maxTasksPerPlan": max_tasks,
        "persistenceEnabled": is_persistent,
    }
    return AgentExtension(EXTENSION_URI, required=False, params=params)
