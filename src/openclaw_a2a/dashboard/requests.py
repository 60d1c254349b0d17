"""Requests for pages and actions: what their handlers get, check and return."""

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from contextlib import contextmanager

import msgspec

from openclaw_a2a.engine.audit_log import AuditLog, audit_outcome
from openclaw_a2a.model.errors import InvalidParams, Problem
from openclaw_a2a.model.message import JsonStruct

_MAX_TEXT = 64 * 1024


class PageRequest(msgspec.Struct, frozen=True):
    """A request for a page: the values of the placeholders in its path, and its query."""

    segments: tuple[str, ...]
    query: dict[str, str]


class Download(msgspec.Struct, frozen=True):
    """Content that is not a page; an agent or a caller made it."""

    content: bytes
    media_type: str
    filename: str


class ActionRequest(msgspec.Struct, frozen=True):
    """An action: the values of the placeholders in its path, and its form.

    Also the user, and the address of the client.
    """

    segments: tuple[str, ...]
    form: dict[str, str]
    who: str
    address: str
    audit: AuditLog

    @contextmanager
    def audited(
        self, event: str, *, action: str, target: str | None = None, task: str = ""
    ) -> Generator[None]:
        """Write the action and its outcome to the audit log when the block ends, or raises.

        `target` defaults to the value of the first placeholder, if there is one.
        """
        if target is None:
            target = self.segments[0] if self.segments else ""
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            # Cancellation too: the action may already have taken effect.
            error = raised
            raise
        finally:
            self.audit.record(
                event,
                self.who,
                action=action,
                target=target,
                task=task,
                address=self.address,
                **audit_outcome(error),
            )


class ActionResult(JsonStruct, frozen=True, omit_defaults=False):
    """What was done, in a sentence, and the page that shows it.

    `token`: a new token in plain text; shown once, never stored.
    `is_bad`: the action succeeded and reports a problem, for example that a remote agent does not
    answer.
    """

    message: str
    location: str
    id: str = ""
    token: str = ""
    is_bad: bool = False


ReadPage = Callable[[PageRequest], Awaitable[JsonStruct]]
ReadDownload = Callable[[PageRequest], Awaitable[Download]]
ActionHandler = Callable[[ActionRequest], Awaitable[ActionResult]]
ReadConflict = Callable[[ActionRequest], Awaitable[JsonStruct]]


def invalid_member(name: str, reason: str) -> InvalidParams:
    """The error for one member of a query, a form or a path."""
    return InvalidParams(f"{name} {reason}", problems=(Problem(name, reason),))


def read_choice(
    members: Mapping[str, str], name: str, choices: Collection[str], default: str = ""
) -> str:
    """The member of a query or form, which must be one of the choices. Raises: InvalidParams."""
    value = members.get(name, default)
    if value not in choices:
        raise invalid_member(name, f"must be one of {', '.join(filter(None, choices))}")
    return value


def read_form_text(request: ActionRequest) -> str:
    """The text of the form. Raises: InvalidParams."""
    text = request.form.get("text", "").strip()
    if not text or len(text) > _MAX_TEXT:
        raise invalid_member("text", f"must have 1 to {_MAX_TEXT} characters")
    return text
