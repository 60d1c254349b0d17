"""Checks requests to `remote_agent` in two stages: the JSON Schema, then which fields go together.

Each stage reports all its errors, in the form of the JSON Schema validator Ajv, which the contract
of the tool prescribes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import jsonschema_rs

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import (
    COUNT_SCHEMA,
    FLAG_SCHEMA,
    TEXT_MAP_SCHEMA,
    TEXT_SCHEMA,
    TOOL_NAME,
    TRANSPORT_SCHEMA,
    OutboundConfig,
    closed_schema,
)
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import TargetDirectory

_HANDLE_PATTERN = r"^rah_[A-Za-z0-9-]+$"
_VALIDATION_FAILED = "remote_agent input validation failed"

_TARGETING = frozenset({"target_alias", "target_url"})
_TASK = frozenset({"task_handle", "task_id", "continuation"})
_ALWAYS = frozenset({"action"})
_REMOTE = _ALWAYS | _TARGETING | _TASK | {"timeout_ms", "service_parameters"}
ALLOWED_FIELDS = {
    "list_targets": _ALWAYS,
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
"""The fields of each action."""

_EXCLUDED_BY_CONTINUATION = ("task_handle", "task_id", "context_id", "target_alias", "target_url")
_MESSAGES = {
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
        self._schema_validator = jsonschema_rs.Draft202012Validator(
            self.schema, validate_formats=True
        )

    def check(self, request: Json) -> JsonObject:
        """The request, when it is valid. Raises: RemoteFailure with every error of a stage."""
        errors = self._schema_errors(request)
        if not errors:
            errors = list(_Rules(request, self._config, self._targets).errors())
        if errors:
            details: JsonObject = {"source": "ajv", "tool": TOOL_NAME, "errors": errors}
            raise RemoteFailure(ErrorCode.VALIDATION, _VALIDATION_FAILED, details)
        return request

    def _schema_errors(self, request: Json) -> list[JsonObject]:
        try:
            return list(_schema_errors(self._schema_validator.iter_errors(request)))
        except ValueError as error:
            reason = str(error).encode("ascii", "backslashreplace").decode()
            invalid: JsonObject = {
                "instancePath": "",
                "schemaPath": "#/type",
                "keyword": "type",
                "params": {"type": "object"},
                "message": f"must be JSON: {reason}",
            }
            return [invalid]


def requested_action(request: Json) -> str:
    """The action of a request for its envelope; `unknown` when it has none."""
    action: Json = cast("JsonObject", request).get("action") if isinstance(request, dict) else None
    return action if isinstance(action, str) else "unknown"


# -------------------------------------------------------------------- stage one: the schema


def _schema_errors(errors: Iterable[jsonschema_rs.ValidationError]) -> Iterator[JsonObject]:
    for error in errors:
        for branch in _branches(error):
            yield from _schema_errors(branch)
        for params in _params(error):
            yield _schema_error(error, params)


def _branches(error: jsonschema_rs.ValidationError) -> list[list[jsonschema_rs.ValidationError]]:
    """The errors of each alternative of a oneOf; only of those with the right `kind`, if any."""
    context = getattr(error.kind, "context", None)
    if context is None:
        return []
    near = [branch for branch in context if not any(one.kind.name == "const" for one in branch)]
    return near or context


def _schema_error(error: jsonschema_rs.ValidationError, params: JsonObject) -> JsonObject:
    keyword = error.kind.name
    template = _MESSAGES.get(keyword)
    return {
        "instancePath": _pointer(error.instance_path),
        "schemaPath": "#" + _pointer(error.schema_path),
        "keyword": keyword,
        "params": params,
        "message": template.format(**params) if template else error.message,
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


# -------------------------------------------------------------------- stage two: the rules


def _rule_error(keyword: str, message: str, path: str = "", **params: Json) -> JsonObject:
    return {
        "instancePath": path,
        "schemaPath": f"#/runtime/{keyword}",
        "keyword": keyword,
        "params": params,
        "message": message,
    }


class _Rules:
    """The rules that the schema cannot express: which fields go together."""

    def __init__(
        self, request: JsonObject, config: OutboundConfig, targets: TargetDirectory
    ) -> None:
        self._request = request
        self._config = config
        self._targets = targets
        self._action: str = request["action"]

    def errors(self) -> Iterator[JsonObject]:
        yield from self._check_allowed_fields()
        if self._action == "list_targets":
            return
        yield from self._check_continuation()
        yield from self._check_send() if self._action == "send" else self._check_task()
        yield from self._check_target()

    def _check_allowed_fields(self) -> Iterator[JsonObject]:
        for name in self._request:
            if name not in ALLOWED_FIELDS[self._action]:
                message = f'"{name}" is not allowed with action={self._action}'
                yield _rule_error("not", message, property=name, action=self._action)

    def _check_continuation(self) -> Iterator[JsonObject]:
        if "continuation" not in self._request:
            return
        for name in _EXCLUDED_BY_CONTINUATION:
            if name in self._request:
                message = f'"{name}" must not be given together with continuation'
                yield _rule_error("not", message, f"/{name}", property=name, action=self._action)

    def _check_send(self) -> Iterator[JsonObject]:
        request = self._request
        if "parts" not in request:
            yield _rule_error("required", "action=send needs parts", missingProperty="parts")
        if request.get("follow_updates") is True and "blocking" in request:
            message = "blocking must not be given when follow_updates is true"
            yield _rule_error("not", message, "/blocking")
        continuation = request.get("continuation")
        if continuation is not None:
            if "task" not in continuation and "conversation" not in continuation:
                message = "needs continuation.task or continuation.conversation"
                yield _rule_error("anyOf", message, "/continuation")
        elif "task_handle" not in request and not self._has_target():
            message = (
                "needs task_handle, target_alias or target_url, because there is no default target"
            )
            yield _rule_error("anyOf", message)

    def _check_task(self) -> Iterator[JsonObject]:
        request, action = self._request, self._action
        if "continuation" in request:
            if "task" not in request["continuation"]:
                message = f"action={action} needs continuation.task.task_id"
                yield _rule_error("required", message, "/continuation", missingProperty="task")
        elif "task_handle" not in request and "task_id" not in request:
            yield _rule_error("anyOf", f"action={action} needs task_handle or task_id")
        elif "task_handle" not in request and not self._has_target():
            message = "task_id needs target_alias or target_url, because there is no default target"
            yield _rule_error("anyOf", message)

    def _has_target(self) -> bool:
        return self._targets.has_default or not _TARGETING.isdisjoint(self._request)

    def _check_target(self) -> Iterator[JsonObject]:
        alias, url = self._request.get("target_alias"), self._request.get("target_url")
        if alias is not None and alias not in self._config.aliases:
            allowed = list(self._config.aliases)
            message = f'there is no target with the alias "{alias}"'
            yield _rule_error("enum", message, "/target_alias", allowedValues=allowed)
        may_override = self._config.policy.allow_target_url_override
        if url is not None and not may_override and not self._targets.configured_at(url):
            yield _rule_error(
                "anyOf",
                "is not a configured target, and the policy does not allow other addresses",
                "/target_url",
                allowTargetUrlOverride=False,
                configuredTargetAliases=list(self._config.aliases),
            )


# -------------------------------------------------------------------- the schema

_URI_SCHEMA: JsonObject = {"type": "string", "format": "uri"}
_OBJECT_SCHEMA: JsonObject = {"type": "object"}


def _described(schema: JsonObject, description: str) -> JsonObject:
    return {**schema, "description": description}


_TEXT_PART = closed_schema(
    {"kind": {"const": "text"}, "text": {"type": "string"}, "metadata": _OBJECT_SCHEMA},
    ["kind", "text"],
)
_FILE_PART = closed_schema(
    {
        "kind": {"const": "file"},
        "uri": _described(_URI_SCHEMA, "Where the file is; wins over bytes."),
        "bytes": _described({"type": "string"}, "The file in base64."),
        "name": {"type": "string"},
        "mime_type": {"type": "string"},
        "metadata": _OBJECT_SCHEMA,
    },
    ["kind"],
    anyOf=[{"required": ["uri"]}, {"required": ["bytes"]}],
)
_DATA_PART = closed_schema(
    {"kind": {"const": "data"}, "data": _OBJECT_SCHEMA, "metadata": _OBJECT_SCHEMA},
    ["kind", "data"],
)
_PUSH_CONFIG = closed_schema(
    {
        "url": _URI_SCHEMA,
        "id": {"type": "string"},
        "token": {"type": "string"},
        "authentication": closed_schema(
            {
                "schemes": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                "credentials": {"type": "string"},
            },
            ["schemes"],
        ),
    },
    ["url"],
)
_CONTINUATION = closed_schema(
    {
        "target": closed_schema(
            {
                "target_url": {**_URI_SCHEMA, "pattern": "^https?://"},
                "card_path": TEXT_SCHEMA,
                "preferred_transports": {
                    "type": "array",
                    "minItems": 1,
                    "items": TRANSPORT_SCHEMA,
                },
                "target_alias": TEXT_SCHEMA,
            },
            ["target_url", "card_path", "preferred_transports"],
        ),
        "task": closed_schema(
            {
                "task_id": TEXT_SCHEMA,
                "task_handle": {"type": "string", "pattern": _HANDLE_PATTERN},
                "status": TEXT_SCHEMA,
                "can_resume_send": FLAG_SCHEMA,
                "can_send": FLAG_SCHEMA,
                "can_status": FLAG_SCHEMA,
                "can_cancel": FLAG_SCHEMA,
                "can_watch": FLAG_SCHEMA,
            },
            ["task_id"],
        ),
        "conversation": closed_schema(
            {"context_id": TEXT_SCHEMA, "can_send": {"const": True}}, ["context_id"]
        ),
    },
    ["target"],
)


def request_schema(aliases: Sequence[str]) -> JsonObject:
    """The schema of a request when these targets are configured."""
    alias: JsonObject = {**TEXT_SCHEMA, "enum": list(aliases)} if aliases else TEXT_SCHEMA
    part: JsonObject = {"oneOf": [_TEXT_PART, _FILE_PART, _DATA_PART]}
    return closed_schema(
        {
            "action": _described({"enum": list(ALLOWED_FIELDS)}, "What to do."),
            "target_alias": _described(alias, "A configured remote agent."),
            "target_url": _described(
                {**_URI_SCHEMA, "pattern": "^https?://"},
                "A remote agent by address, where allowed.",
            ),
            "task_handle": _described(
                {"type": "string", "pattern": _HANDLE_PATTERN}, "A handle of an earlier answer."
            ),
            "task_id": _described(TEXT_SCHEMA, "The peer's id of a task."),
            "continuation": _described(
                _CONTINUATION, "summary.continuation of an earlier answer, unchanged."
            ),
            "parts": _described(
                {"type": "array", "minItems": 1, "items": part}, "What to send (action=send)."
            ),
            "message_id": _described(TEXT_SCHEMA, "An id for the message; made when left out."),
            "context_id": _described(TEXT_SCHEMA, "The conversation to go on with."),
            "reference_task_ids": {"type": "array", "minItems": 1, "items": TEXT_SCHEMA},
            "task_requirement": _described(
                {"enum": ["optional", "required"]}, "required: only a task is an answer."
            ),
            "follow_updates": _described(
                FLAG_SCHEMA, "Follow the work until it ends (action=send)."
            ),
            "accepted_output_modes": {"type": "array", "items": TEXT_SCHEMA},
            "blocking": _described(FLAG_SCHEMA, "Wait for the result; not with follow_updates."),
            "history_length": {"type": "integer", "minimum": 0},
            "push_notification_config": _PUSH_CONFIG,
            "metadata": _OBJECT_SCHEMA,
            "timeout_ms": _described(COUNT_SCHEMA, "A deadline for the whole call."),
            "service_parameters": _described(TEXT_MAP_SCHEMA, "Extra request headers."),
        },
        ["action"],
    )
