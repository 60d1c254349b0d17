"""What scripts get back from remote agents: small frozen results, and one exception."""

from typing import TypeGuard

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject

_ENDED = frozenset({"completed", "failed", "canceled", "rejected"})
_WAITING = frozenset({"input-required", "auth-required"})


class RemoteTask(msgspec.Struct, frozen=True):
    """A task at a remote agent. `handle` names it together with its agent."""

    id: str
    handle: str | None = None
    state: str | None = None

    @property
    def is_over(self) -> bool:
        """True when it has ended, well or badly."""
        return self.state in _ENDED

    @property
    def is_waiting(self) -> bool:
        """True when it waits for its caller."""
        return self.state in _WAITING


class RemoteResult(msgspec.Struct, frozen=True):
    """What a remote agent answered, or how far it has come.

    `continuation` goes back unchanged to go on; `raw` is what the agent said, `envelope` all that
    the tool gave. When `ok` is false, `code`, `message` and `details` say why.
    """

    ok: bool
    envelope: JsonObject
    text: str = ""
    task: RemoteTask | None = None
    context_id: str | None = None
    artifacts: tuple[JsonObject, ...] = ()
    continuation: JsonObject | None = None
    raw: Json = None

    @classmethod
    def from_envelope(cls, envelope: JsonObject) -> "RemoteResult":
        """The result that an envelope of the tool tells."""
        summary = _object(envelope.get("summary"))
        continuation = summary.get("continuation")
        known = _object(continuation)
        return cls(
            ok=envelope.get("ok") is True,
            envelope=envelope,
            text=summary.get("message_text", ""),
            task=_task(_object(known.get("task"))),
            context_id=_object(known.get("conversation")).get("context_id"),
            artifacts=tuple(summary.get("artifacts", ())),
            continuation=continuation,
            raw=envelope.get("raw"),
        )

    @property
    def code(self) -> str:
        """Why it failed; empty when it did not."""
        return _object(self.envelope.get("error")).get("code", "")

    @property
    def message(self) -> str:
        """Why it failed, in a sentence; empty when it did not."""
        return _object(self.envelope.get("error")).get("message", "")

    @property
    def details(self) -> JsonObject:
        """What is known of a failure."""
        return _object(_object(self.envelope.get("error")).get("details"))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with a request that is not valid, a sentence each."""
        return tuple(_problem(error) for error in self.details.get("errors", ()))


class RemoteAgentFailed(Exception):
    """A remote agent could not be asked, or did not do it; `code` and `details` say why.

    `continuation` is set when a task is known that may go on.
    """

    def __init__(self, result: RemoteResult) -> None:
        reasons = "; ".join(result.problems)
        why = f"{result.message} ({reasons})" if reasons else result.message
        super().__init__(f"{result.code}: {why}")
        self.result = result
        self.code = result.code
        self.message = result.message
        self.details = result.details

    @property
    def continuation(self) -> JsonObject | None:
        """How to go on with what had come before it failed."""
        return continuation_of_failure(self.details)


def continuation_of_failure(details: JsonObject) -> JsonObject | None:
    """The continuation of what had come before a failure, when anything had."""
    known = _object(details.get("latest_event_summary")).get("continuation")
    return known if _is_object(known) else details.get("continuation")


class RemoteTarget(msgspec.Struct, frozen=True):
    """A configured target. `trouble` says why its card could not be read; empty when it could."""

    alias: str
    url: str
    is_default: bool
    name: str = ""
    description: str = ""
    skills: tuple[str, ...] = ()
    is_streaming: bool | None = None
    trouble: str = ""
    entry: JsonObject = {}

    @classmethod
    def of(cls, entry: JsonObject) -> "RemoteTarget":
        """The target that an entry of `list_targets` tells."""
        skills = _object(entry.get("peer_card")).get("skills", [])
        return cls(
            alias=entry["target_alias"],
            url=entry["target_url"],
            is_default=entry["default"],
            name=entry.get("target_name", ""),
            description=entry.get("description", ""),
            skills=tuple(skill["name"] for skill in skills),
            is_streaming=entry.get("streaming_supported"),
            trouble=_object(entry.get("last_refresh_error")).get("message", ""),
            entry=entry,
        )


def _problem(error: JsonObject) -> str:
    path = str(error.get("instancePath", "")).strip("/").replace("/", ".")
    return f"{path}: {error['message']}" if path else str(error["message"])


def _task(task: JsonObject) -> RemoteTask | None:
    if "task_id" not in task:
        return None
    return RemoteTask(task["task_id"], task.get("task_handle"), task.get("status"))


def _object(value: Json) -> JsonObject:
    return value if _is_object(value) else {}


def _is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)
