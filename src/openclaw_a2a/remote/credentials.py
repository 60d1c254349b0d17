"""Secrets of targets: `${NAME}` in the configuration is filled in, and kept out of all output.

The environment is read when a call is made, so that a changed value needs no new configuration.
"""

import re
from collections.abc import Iterable, Mapping
from typing import cast

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import object_at
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.result.remote_result import LAST_STATES

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
"""Shorter values are no secrets, and would be found in any text."""


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
    """What must not be shown when a peer repeats it: everything that it could use to be us.

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


def redact(value: Json, secrets: tuple[str, ...]) -> Json:
    """The value with every secret in its texts replaced."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        return value
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {redact(key, secrets): redact(member, secrets) for key, member in members.items()}
    if isinstance(value, list):
        return [redact(item, secrets) for item in cast("list[Json]", value)]
    return value


class EventRedactor:
    """Hides secrets in the events of one request, also where a peer spreads one over chunks.

    Invariant: no joined text of an artifact, up to any event that was returned, has a secret or the
    beginning of one at its end. What could be the beginning of a secret is held back until the next
    chunk, or the end of the stream, shows what it is.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._held: dict[str, str] = {}
        self._ids: JsonObject = {}
        """The ids of the task and context of what is held."""

    def redact(self, event: JsonObject) -> list[JsonObject]:
        """The event without secrets; before the last one, what was held back."""
        if not self._secrets:
            return [event]
        event = redact(event, self._secrets)
        kind = event["kind"]
        if kind == "artifact-update":
            self._ids = {key: event[key] for key in ("taskId", "contextId") if key in event}
            return [self._redact_chunk(event)]
        if kind == "task":  # it has the whole artifacts
            self._held.clear()
            for artifact in event.get("artifacts", ()):
                artifact["parts"] = self._redact_parts(artifact["parts"])
        elif kind == "status-update" and event["status"]["state"] in LAST_STATES:
            return [*self.flush(), event]
        return [event]

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

    def _redact_chunk(self, event: JsonObject) -> JsonObject:
        artifact: JsonObject = event["artifact"]
        name: str = artifact["artifactId"]
        before = self._held.pop(name, "") if event.get("append") is True else ""
        parts = self._redact_parts(artifact["parts"], before)
        if event.get("lastChunk") is not True:
            last = next((one for one in reversed(parts) if one["kind"] == "text"), None)
            if last is not None and (size := self._suspicious_chars(last["text"])):
                self._held[name] = last["text"][-size:]
                last["text"] = last["text"][:-size]
        return {**event, "artifact": {**artifact, "parts": parts}}

    def _redact_parts(self, parts: list[JsonObject], before: str = "") -> list[JsonObject]:
        """Parts of an artifact, whose texts are read as one; `before` comes before the first."""
        if before and not any(one["kind"] == "text" for one in parts):
            parts = [{"kind": "text", "text": ""}, *parts]
        redacted: list[JsonObject] = []
        open_part: JsonObject | None = None
        for part in parts:
            if part["kind"] == "text":
                part = {**part, "text": redact(before + part["text"], self._secrets)}
                before = ""
                size = self._suspicious_chars(part["text"])
                if size:
                    before, part["text"] = part["text"][-size:], part["text"][:-size]
                open_part = part
            redacted.append(part)
        if open_part is not None:
            open_part["text"] += before
        return redacted

    def _suspicious_chars(self, text: str) -> int:
        """How many characters at the end of a text are the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            tail = text[-(len(secret) - 1) :]
            start = tail.find(secret[0])
            while start >= 0 and not secret.startswith(tail[start:]):
                start = tail.find(secret[0], start + 1)
            if start >= 0:
                longest = max(longest, len(tail) - start)
        return longest
