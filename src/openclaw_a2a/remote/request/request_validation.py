"""Checks a request in two stages, each with all its errors, told as JSON Schema validators do."""

from collections.abc import Iterable, Iterator
from typing import cast

import jsonschema_rs

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import OutboundConfig
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.request.schema import request_schema
from openclaw_a2a.remote.targets import TargetDirectory

LABEL = "remote_agent input validation failed"
TOOL = "remote_agent"

_TARGETING = frozenset({"target_alias", "target_url"})
_TASK = frozenset({"task_handle", "task_id", "continuation"})
_EVERY = frozenset({"action"})
_REMOTE = _EVERY | _TARGETING | _TASK | {"timeout_ms", "service_parameters"}
ALLOWED = {
    "list_targets": _EVERY,
    "send": _REMOTE
    | {
        "parts",
        "message_id",
        "context_id",
        "reference_task_ids",
        "task_requirement",
        "follow_updates",
        "accepted_output_modes",
        "blocking",
        "history_length",
        "push_notification_config",
        "metadata",
    },
    "watch": _REMOTE,
    "status": _REMOTE | {"history_length"},
    "cancel": _REMOTE,
}
"""Which fields an action takes."""

_NOT_BESIDE_CONTINUATION = ("task_handle", "task_id", "context_id", "target_alias", "target_url")
_PLAIN_MESSAGES = {
    "required": 'must have required property "{missingProperty}"',
    "additionalProperties": 'must not have the property "{additionalProperty}"',
    "enum": "must be one of {allowedValues}",
    "const": "must be {allowedValue}",
    "minItems": "must not have fewer than {limit} items",
    "minLength": "must not have fewer than {limit} characters",
    "minimum": "must be >= {limit}",
    "pattern": 'must match pattern "{pattern}"',
    "format": 'must match format "{format}"',
    "type": "must be {type}",
    "oneOf": "must match exactly one of the allowed shapes",
    "anyOf": "must match one of the allowed shapes",
}


class RequestValidator:
    """Checks requests against the schema and the rules of one configuration."""

    def __init__(self, config: OutboundConfig, targets: TargetDirectory) -> None:
        self.schema = request_schema(config.aliases)
        self._config = config
        self._targets = targets
        self._stage_one = jsonschema_rs.Draft202012Validator(self.schema, validate_formats=True)

    def check(self, request: Json) -> JsonObject:
        """The request, when it is valid. Raises: RemoteFailure with every error of a stage."""
        errors = self._schema_errors(request)
        if not errors:
            errors = list(_Rules(request, self._config, self._targets).errors())
        if errors:
            details: JsonObject = {"source": "ajv", "tool": TOOL, "errors": errors}
            raise RemoteFailure(ErrorCode.VALIDATION, LABEL, details)
        return request

    def _schema_errors(self, request: Json) -> list[JsonObject]:
        try:
            return list(_schema_errors(self._stage_one.iter_errors(request)))
        except ValueError as error:
            reason = str(error).encode("ascii", "backslashreplace").decode()
            told: JsonObject = {
                "instancePath": "",
                "schemaPath": "#/type",
                "keyword": "type",
                "params": {"type": "object"},
                "message": f"must be JSON: {reason}",
            }
            return [told]


def requested_action(request: Json) -> str:
    """The action a request asks for, as envelopes name it."""
    action: Json = cast("JsonObject", request).get("action") if isinstance(request, dict) else None
    return action if isinstance(action, str) else "unknown"


# -------------------------------------------------------------------- stage one


def _schema_errors(errors: Iterable[jsonschema_rs.ValidationError]) -> Iterator[JsonObject]:
    for error in errors:
        for branch in _branches(error):
            yield from _schema_errors(branch)
        for params in _params(error):
            yield _schema_error(error, params)


def _branches(error: jsonschema_rs.ValidationError) -> list[list[jsonschema_rs.ValidationError]]:
    """What is wrong with each of several allowed shapes; only those that could be meant."""
    context = getattr(error.kind, "context", None)
    if context is None:
        return []
    near = [branch for branch in context if not any(one.kind.name == "const" for one in branch)]
    return near or context


def _schema_error(error: jsonschema_rs.ValidationError, params: JsonObject) -> JsonObject:
    keyword = error.kind.name
    words = _PLAIN_MESSAGES.get(keyword)
    return {
        "instancePath": _pointer(error.instance_path),
        "schemaPath": "#" + _pointer(error.schema_path),
        "keyword": keyword,
        "params": params,
        "message": words.format(**params) if words else error.message,
    }


def _params(error: jsonschema_rs.ValidationError) -> list[JsonObject]:
    """The parameters of an error; several unexpected members are several errors."""
    kind: Json = error.kind
    name, value = kind.name, getattr(kind, "value", None)
    if name == "additionalProperties":
        return [{"additionalProperty": one} for one in kind.unexpected]
    named = {
        "required": "missingProperty",
        "enum": "allowedValues",
        "const": "allowedValue",
        "pattern": "pattern",
        "format": "format",
    }
    if name in named:
        return [{named[name]: value}]
    if name == "type":
        return [{"type": ",".join(kind.types)}]
    limit = getattr(kind, "limit", None)
    return [{} if limit is None else {"limit": limit}]


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(one).replace("~", "~0").replace("/", "~1") for one in path)


# -------------------------------------------------------------------- stage two


def _runtime(keyword: str, message: str, path: str = "", **params: Json) -> JsonObject:
    return {
        "instancePath": path,
        "schemaPath": f"#/runtime/{keyword}",
        "keyword": keyword,
        "params": params,
        "message": message,
    }


class _Rules:
    """What the schema cannot say: which fields go together."""

    def __init__(
        self, request: JsonObject, config: OutboundConfig, targets: TargetDirectory
    ) -> None:
        self._request = request
        self._config = config
        self._targets = targets
        self._action: str = request["action"]

    def errors(self) -> Iterator[JsonObject]:
        yield from self._not_allowed()
        if self._action == "list_targets":
            return
        yield from self._beside_continuation()
        yield from self._send() if self._action == "send" else self._follow()
        yield from self._target()

    def _not_allowed(self) -> Iterator[JsonObject]:
        for name in self._request:
            if name not in ALLOWED[self._action]:
                message = f'"{name}" is not allowed with action={self._action}'
                yield _runtime("not", message, property=name, action=self._action)

    def _beside_continuation(self) -> Iterator[JsonObject]:
        if "continuation" not in self._request:
            return
        for name in _NOT_BESIDE_CONTINUATION:
            if name in self._request:
                message = f'"{name}" must not be given together with continuation'
                yield _runtime("not", message, f"/{name}", property=name, action=self._action)

    def _send(self) -> Iterator[JsonObject]:
        request = self._request
        if "parts" not in request:
            yield _runtime("required", "action=send needs parts", missingProperty="parts")
        if request.get("follow_updates") is True and "blocking" in request:
            message = "blocking must not be given when follow_updates is true"
            yield _runtime("not", message, "/blocking")
        continuation = request.get("continuation")
        if continuation is not None:
            if "task" not in continuation and "conversation" not in continuation:
                message = "needs continuation.task or continuation.conversation"
                yield _runtime("anyOf", message, "/continuation")
        elif "task_handle" not in request and not self._has_target():
            message = (
                "needs task_handle, target_alias or target_url, because there is no default target"
            )
            yield _runtime("anyOf", message)

    def _follow(self) -> Iterator[JsonObject]:
        request, action = self._request, self._action
        if "continuation" in request:
            if "task" not in request["continuation"]:
                message = f"action={action} needs continuation.task.task_id"
                yield _runtime("required", message, "/continuation", missingProperty="task")
        elif "task_handle" not in request and "task_id" not in request:
            yield _runtime("anyOf", f"action={action} needs task_handle or task_id")
        elif "task_handle" not in request and not self._has_target():
            message = "task_id needs target_alias or target_url, because there is no default target"
            yield _runtime("anyOf", message)

    def _has_target(self) -> bool:
        has_default = self._config.default_target is not None
        return has_default or not _TARGETING.isdisjoint(self._request)

    def _target(self) -> Iterator[JsonObject]:
        alias, url = self._request.get("target_alias"), self._request.get("target_url")
        if alias is not None and alias not in self._config.aliases:
            allowed = list(self._config.aliases)
            message = f'there is no target with the alias "{alias}"'
            yield _runtime("enum", message, "/target_alias", allowedValues=allowed)
        may_override = self._config.policy.allow_target_url_override
        if url is not None and not may_override and not self._targets.with_url(url):
            yield _runtime(
                "anyOf",
                "is not a configured target, and the policy does not allow other addresses",
                "/target_url",
                allowTargetUrlOverride=False,
                configuredTargetAliases=list(self._config.aliases),
            )
