"""Secrets of targets: `${NAME}` in the configuration is filled in, and kept out of all output.

The environment is read when a call is made, so that a changed value needs no new configuration.
"""

import re
from collections.abc import Iterable, Mapping

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import secret_tail
from openclaw_a2a.model.validation import drop_none, is_list, is_object, object_at
from openclaw_a2a.remote.result import LAST_STATES, PAUSED_STATES, ErrorCode, RemoteFailure

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def has_variables(text: str) -> bool:
    """True when the text refers to environment variables."""
    return _VARIABLE.search(text) is not None


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """The text with `${NAME}` replaced. Raises: RemoteFailure (a variable is not set)."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environment:
            raise RemoteFailure(
                ErrorCode.TARGET_RESOLUTION,
                f"the environment variable {name}, which the configuration uses, is not set",
                {
                    "reason": "missing_environment_variable",
                    "variable": name,
                    "hint": f"set {name} where the gateway runs, and start it again",
                    "suggested_action": "list_targets",
                },
            )
        return environment[name]

    return _VARIABLE.sub(value, text)


REDACTED = "[hidden]"
_MIN_SECRET_CHARS = 6
"""Shorter values are not treated as secrets: any text may contain them."""


_PUBLIC_HEADERS = frozenset(
    {"a2a-extensions", "a2a-version", "accept", "accept-language", "content-type", "user-agent"}
)
"""Headers whose values are in many answers, and never secret."""


def find_secrets(
    headers: Mapping[str, str],
    parameters: Mapping[str, str],
    environment: Mapping[str, str],
    push: JsonObject | None = None,
) -> tuple[str, ...]:
    """The secrets to hide when a peer repeats them: all values that identify us to it.

    These are the values of all headers (with and without the scheme before a token), the values
    from the environment in service parameters, and the credentials of a push notification config.
    """
    found = list(header_secrets(headers))
    for value in parameters.values():
        found += [environment.get(name, "") for name in _VARIABLE.findall(value)]
    if push is not None:
        authentication = object_at(push, "authentication")
        found += [push.get("token") or "", authentication.get("credentials") or ""]
    return _secrets(found)


def header_secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values of headers that must not be shown."""
    found: list[str] = []
    for name, value in headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            found += [value.strip(), value.strip().partition(" ")[2].strip()]
    return _secrets(found)


def _secrets(found: Iterable[str]) -> tuple[str, ...]:
    """The longest first: one may be a part of another."""
    kept = {one for one in found if len(one) >= _MIN_SECRET_CHARS}
    return tuple(sorted(kept, key=len, reverse=True))


_STRUCTURE = frozenset(
    {
        *("kind", "state", "role", "timestamp", "mimeType"),
        *("taskId", "contextId", "messageId", "artifactId", "referenceTaskIds"),
        *("errorName", "grpcStatus", "reason", "suggested_action", "supported", "retry_at"),
        *("task_id", "context_id", "message_id", "task_handle", "response_kind"),
        *("target_alias", "target_url"),
    }
)
"""Members of events and errors with ids and protocol constants, which callers rely on.

A header may have such a value: that of `X-Wait-For: completed` is in the state of every task.
"""
_FREE_JSON = frozenset({"data", "metadata", "params"})


def redact(value: Json, secrets: tuple[str, ...]) -> Json:
    """A text, event, card or error with every secret in its texts replaced.

    Its structure stays: the names of members, the ids, and the words of the protocol.
    """
    if not secrets:
        return value
    if is_object(value):
        return {
            key: member
            if key in _STRUCTURE
            else _redact_free(member, secrets)
            if key in _FREE_JSON
            else redact(member, secrets)
            for key, member in value.items()
        }
    if is_list(value):
        return [redact(item, secrets) for item in value]
    return _redact_free(value, secrets)


def _redact_free(value: Json, secrets: tuple[str, ...]) -> Json:
    """JSON of any form with every secret replaced, also in the names of its members."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        return value
    if is_object(value):
        members = value.items()
        return {_redact_free(key, secrets): _redact_free(one, secrets) for key, one in members}
    if is_list(value):
        return [_redact_free(item, secrets) for item in value]
    return value


class EventRedactor:
    """Hides secrets in the events of one request, also where a peer spreads one over chunks.

    Invariant: no joined text of an artifact, up to any event that was returned, has a secret or the
    beginning of one at its end. What could be the beginning of a secret is held back until the next
    chunk, or the end of the stream, shows what it is. A `lastChunk` flag does not count: a peer may
    send more. In a task that continues, the next answer contains it.
    """

    def __init__(self, *, is_stream: bool) -> None:
        self.secrets: tuple[str, ...] = ()
        self._last_states = LAST_STATES if is_stream else LAST_STATES | PAUSED_STATES
        self._held: dict[str, str] = {}
        self._ids: JsonObject = {}
        """The ids of the task and context of what is held."""

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Hide these, too."""
        self.secrets = _secrets((*self.secrets, *secrets))

    def redact(self, event: JsonObject) -> list[JsonObject]:
        """The event without secrets; before the last one, what was held back."""
        if not self.secrets:
            return [event]
        kind, shown = event["kind"], redact(event, self.secrets)
        is_last = (
            kind in ("task", "status-update") and event["status"]["state"] in self._last_states
        )
        if kind == "artifact-update":
            self._ids = {key: event[key] for key in ("taskId", "contextId") if key in event}
            artifact: JsonObject = shown["artifact"]
            before = self._held.pop(artifact["artifactId"], "")
            is_append = event.get("append") is True  # otherwise it replaces the held-back text, too
            artifact["parts"] = self._redact_parts(artifact["parts"], before if is_append else "")
            self._hold_end(artifact)
        elif kind == "task":  # it has the whole artifacts
            self._held.clear()
            shown["id"] = event["id"]
            self._ids = drop_none({"taskId": event["id"], "contextId": event.get("contextId")})
            for artifact in shown.get("artifacts", ()):
                artifact["parts"] = self._redact_parts(artifact["parts"])
            # Of several artifacts with one id, chunks are appended to the last.
            newest = {one["artifactId"]: one for one in shown.get("artifacts", ())}
            for artifact in () if is_last else newest.values():
                self._hold_end(artifact)
        elif is_last:
            return [*self.flush(), shown]
        return [shown]

    def flush(self) -> list[JsonObject]:
        """What was held back, as events; nothing follows it."""
        held, self._held = self._held, {}
        return [
            {
                "kind": "artifact-update",
                **self._ids,
                "artifact": {"artifactId": name, "parts": [{"kind": "text", "text": text}]},
                "append": True,
                "lastChunk": True,
            }
            for name, text in held.items()
        ]

    def _hold_end(self, artifact: JsonObject) -> None:
        """Hold back what could be the beginning of a secret at the end of the artifact's text."""
        texts = [one for one in artifact["parts"] if one["kind"] == "text"]
        size = secret_tail(texts[-1]["text"], self.secrets) if texts else 0
        if size:
            self._held[artifact["artifactId"]] = texts[-1]["text"][-size:]
            texts[-1]["text"] = texts[-1]["text"][:-size]

    def _redact_parts(self, parts: list[JsonObject], before: str = "") -> list[JsonObject]:
        """Parts of an artifact, whose texts are read as one; `before` comes before the first."""
        if before and not any(one["kind"] == "text" for one in parts):
            parts = [{"kind": "text", "text": ""}, *parts]
        redacted: list[JsonObject] = []
        open_part: JsonObject | None = None
        for part in parts:
            if part["kind"] == "text":
                part = {**part, "text": redact(before + part["text"], self.secrets)}
                before = ""
                size = secret_tail(part["text"], self.secrets)
                if size:
                    before, part["text"] = part["text"][-size:], part["text"][:-size]
                open_part = part
            redacted.append(part)
        if open_part is not None:
            open_part["text"] += before
        return redacted
