"""Checks requests to `remote_agent` in two stages: the JSON Schema, then which fields go together.

Each stage reports its errors, at most `MAX_PROBLEMS`, in the form of the JSON Schema validator Ajv,
which the contract of the tool prescribes. Of a large request that does not fit the schema only the
first one is reported.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import jsonschema_rs

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import MAX_PROBLEMS, as_object, schema_errors
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
from openclaw_a2a.remote.request_builder import file_bytes
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import TargetDirectory

_VALIDATION_FAILED = "remote_agent input validation failed"

_TARGETING = frozenset({"target_alias", "target_url"})
_SEND = ("send",)
_REMOTE = ("send", "watch", "status", "cancel")
_ACTIONS = ("list_targets", *_REMOTE)
_EXCLUDED_BY_CONTINUATION = ("task_handle", "task_id", "context_id", "target_alias", "target_url")
_VALUE_PARAMS = {
    "required": "missingProperty",
    "enum": "allowedValues",
    "const": "allowedValue",
    "pattern": "pattern",
    "format": "format",
}
_COMPARISONS = {"minimum": ">=", "maximum": "<="}
_MESSAGES = {
    "required": 'must have required property "{missingProperty}"',
    "additionalProperties": 'must not have the property "{additionalProperty}"',
    "enum": "must be one of {allowedValues}",
    "const": "must be {allowedValue}",
    "minItems": "must not have fewer than {limit} items",
    "minLength": "must not have fewer than {limit} characters",
    "minimum": "must be {comparison} {limit}",
    "maximum": "must be {comparison} {limit}",
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
        self._aliases = config.aliases
        self._allows_any_url = config.policy.allow_target_url_override
        self._targets = targets
        self._schema_validator = jsonschema_rs.Draft202012Validator(
            self.schema, validate_formats=True
        )

    def check(self, request: Json) -> JsonObject:
        """The request, when it is valid. Raises: RemoteFailure with the errors of a stage."""
        try:
            errors: list[JsonObject] = []
            if not self._schema_validator.is_valid(request):
                found = schema_errors(self._schema_validator, request)
                errors = list(islice(_schema_errors(found), MAX_PROBLEMS))
        except ValueError as error:
            reason = str(error).encode("ascii", "backslashreplace").decode()
            errors = [_error("#/type", "type", f"must be JSON: {reason}", type="object")]
        if not errors:
            errors = list(islice(self._rule_errors(request), MAX_PROBLEMS))
        if errors:
            details: JsonObject = {"source": "ajv", "tool": TOOL_NAME, "errors": errors}
            raise RemoteFailure(ErrorCode.VALIDATION, _VALIDATION_FAILED, details)
        return request

    # ---------------------------------------------------------------- stage two: the rules
    # What the schema cannot express: which fields go together.

    def _rule_errors(self, request: JsonObject) -> Iterator[JsonObject]:
        action: str = request["action"]
        for name in request:
            if name not in ALLOWED_FIELDS[action]:
                message = f'"{name}" is not allowed with action={action}'
                yield _rule_error("not", message, property=name, action=action)
        if action == "list_targets":
            return
        for name in _EXCLUDED_BY_CONTINUATION if "continuation" in request else ():
            if name in request:
                message = f'"{name}" must not be given together with continuation'
                yield _rule_error("not", message, f"/{name}", property=name, action=action)
        has_target = self._targets.has_default or not _TARGETING.isdisjoint(request)
        check = _send_errors if action == "send" else _task_errors
        yield from check(request, has_target=has_target)
        alias, url = request.get("target_alias"), request.get("target_url")
        if alias is not None and alias not in self._aliases:
            allowed, message = list(self._aliases), f'there is no target with the alias "{alias}"'
            yield _rule_error("enum", message, "/target_alias", allowedValues=allowed)
        if url is not None and not self._allows_any_url and not self._targets.configured_at(url):
            yield _rule_error(
                "anyOf",
                "is not a configured target, and the policy does not allow other addresses",
                "/target_url",
                allowTargetUrlOverride=False,
                configuredTargetAliases=list(self._aliases),
            )


def _send_errors(request: JsonObject, *, has_target: bool) -> Iterator[JsonObject]:
    if "parts" not in request:
        yield _rule_error("required", "action=send needs parts", missingProperty="parts")
    for index, part in enumerate(request.get("parts", ())):
        if part["kind"] == "file" and "uri" not in part and file_bytes(part) is None:
            # Anything else would arrive as other bytes.
            yield _rule_error("format", "must be base64", f"/parts/{index}/bytes", format="base64")
    if request.get("follow_updates") is True and "blocking" in request:
        message = "blocking must not be given when follow_updates is true"
        yield _rule_error("not", message, "/blocking")
    if "continuation" in request:
        if not {"task", "conversation"} & request["continuation"].keys():
            message = "needs continuation.task or continuation.conversation"
            yield _rule_error("anyOf", message, "/continuation")
    elif "task_handle" not in request and not has_target:
        message = (
            "needs task_handle, target_alias or target_url, because there is no default target"
        )
        yield _rule_error("anyOf", message)


def _task_errors(request: JsonObject, *, has_target: bool) -> Iterator[JsonObject]:
    action: str = request["action"]
    if "continuation" in request:
        if "task" not in request["continuation"]:
            message = f"action={action} needs continuation.task.task_id"
            yield _rule_error("required", message, "/continuation", missingProperty="task")
    elif "task_handle" not in request and "task_id" not in request:
        yield _rule_error("anyOf", f"action={action} needs task_handle or task_id")
    elif "task_handle" not in request and not has_target:
        message = "task_id needs target_alias or target_url, because there is no default target"
        yield _rule_error("anyOf", message)


def _rule_error(keyword: str, message: str, path: str = "", **params: Json) -> JsonObject:
    return _error(f"#/runtime/{keyword}", keyword, message, path, **params)


def _error(
    schema_path: str, keyword: str, message: str, path: str = "", **params: Json
) -> JsonObject:
    return {
        "instancePath": path,
        "schemaPath": schema_path,
        "keyword": keyword,
        "params": params,
        "message": message,
    }


def requested_action(request: Json) -> str:
    """The action of a request for its envelope; `unknown` when it has none."""
    action = as_object(request).get("action")
    return action if isinstance(action, str) else "unknown"


# -------------------------------------------------------------------- stage one: the schema


def _schema_errors(errors: Iterable[jsonschema_rs.ValidationError]) -> Iterator[JsonObject]:
    for error in errors:
        # The errors of each alternative of a oneOf; only of those with the right `kind`, if any.
        branches: list[list[jsonschema_rs.ValidationError]] = (
            getattr(error.kind, "context", None) or []
        )
        near = [one for one in branches if not any(each.kind.name == "const" for each in one)]
        for branch in near or branches:
            yield from _schema_errors(branch)
        keyword = error.kind.name
        for params in _params(error):
            message = error.message
            if keyword in _MESSAGES:
                message = _MESSAGES[keyword].format(**params)
            where = f"#{_pointer(error.schema_path)}"
            yield _error(where, keyword, message, _pointer(error.instance_path), **params)


def _params(error: jsonschema_rs.ValidationError) -> list[JsonObject]:
    """The parameters of an error; several unexpected members are several errors."""
    kind: Json = error.kind
    if kind.name == "additionalProperties":
        return [{"additionalProperty": one} for one in kind.unexpected]
    if kind.name in _VALUE_PARAMS:
        return [{_VALUE_PARAMS[kind.name]: getattr(kind, "value", None)}]
    if kind.name == "type":
        return [{"type": ",".join(kind.types)}]
    limit = getattr(kind, "limit", None)
    params: JsonObject = {} if limit is None else {"limit": limit}
    return [
        {"comparison": _COMPARISONS[kind.name], **params} if kind.name in _COMPARISONS else params
    ]


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(one).replace("~", "~0").replace("/", "~1") for one in path)


# -------------------------------------------------------------------- the schema

_URI: JsonObject = {"type": "string", "format": "uri"}
_WEB_URL: JsonObject = {**_URI, "pattern": "^https?://"}
_STRING: JsonObject = {"type": "string"}
_OBJECT: JsonObject = {"type": "object"}
_HANDLE: JsonObject = {"type": "string", "pattern": r"^rah_[A-Za-z0-9-]+$"}


def _list(items: JsonObject, **more: Json) -> JsonObject:
    return {"type": "array", **more, "items": items}


def _described(schema: JsonObject, description: str) -> JsonObject:
    return {**schema, "description": description}


_TEXT_PART = closed_schema(
    {"kind": {"const": "text"}, "text": _STRING, "metadata": _OBJECT}, ["kind", "text"]
)
_FILE_PART = closed_schema(
    {
        "kind": {"const": "file"},
        "uri": _described(_URI, "Where the file is; wins over bytes."),
        "bytes": _described(_STRING, "The file in base64."),
        "name": _STRING,
        "mime_type": _STRING,
        "metadata": _OBJECT,
    },
    ["kind"],
    anyOf=[{"required": ["uri"]}, {"required": ["bytes"]}],
)
_DATA_PART = closed_schema(
    {"kind": {"const": "data"}, "data": _OBJECT, "metadata": _OBJECT}, ["kind", "data"]
)
_PUSH_CONFIG = closed_schema(
    {
        "url": _URI,
        "id": _STRING,
        "token": _STRING,
        "authentication": closed_schema(
            {"schemes": _list(_STRING, minItems=1), "credentials": _STRING}, ["schemes"]
        ),
    },
    ["url"],
)
_CONTINUATION = closed_schema(
    {
        "target": closed_schema(
            {
                "target_url": _WEB_URL,
                "card_path": TEXT_SCHEMA,
                "preferred_transports": _list(TRANSPORT_SCHEMA, minItems=1),
                "target_alias": TEXT_SCHEMA,
            },
            ["target_url", "card_path", "preferred_transports"],
        ),
        "task": closed_schema(
            {
                "task_id": TEXT_SCHEMA,
                "task_handle": _HANDLE,
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
_MAX_INT32 = 2**31 - 1
"""The protocol's type of a history length."""

_PARTS = _list({"oneOf": [_TEXT_PART, _FILE_PART, _DATA_PART]}, minItems=1)
_LENGTH: JsonObject = {"type": "integer", "minimum": 0, "maximum": _MAX_INT32}
_OR_REQUIRED: JsonObject = {"enum": ["optional", "required"]}

_FIELDS: dict[str, tuple[JsonObject, str, tuple[str, ...]]] = {
    "action": ({"enum": list(_ACTIONS)}, "What to do.", _ACTIONS),
    "target_alias": (TEXT_SCHEMA, "A configured remote agent.", _REMOTE),
    "target_url": (_WEB_URL, "A remote agent by address, where allowed.", _REMOTE),
    "task_handle": (_HANDLE, "A handle of an earlier answer.", _REMOTE),
    "task_id": (TEXT_SCHEMA, "The peer's id of a task.", _REMOTE),
    "continuation": (
        _CONTINUATION,
        "summary.continuation of an earlier answer, unchanged.",
        _REMOTE,
    ),
    "parts": (_PARTS, "What to send (action=send).", _SEND),
    "message_id": (TEXT_SCHEMA, "An id for the message; made when left out.", _SEND),
    "context_id": (TEXT_SCHEMA, "The conversation to go on with.", _SEND),
    "reference_task_ids": (_list(TEXT_SCHEMA, minItems=1), "", _SEND),
    "task_requirement": (_OR_REQUIRED, "required: only a task is an answer.", _SEND),
    "follow_updates": (FLAG_SCHEMA, "Follow the work until it ends (action=send).", _SEND),
    "accepted_output_modes": (_list(TEXT_SCHEMA), "", _SEND),
    "blocking": (FLAG_SCHEMA, "Wait for the result; not with follow_updates.", _SEND),
    "history_length": (_LENGTH, "", ("send", "status")),
    "push_notification_config": (_PUSH_CONFIG, "", _SEND),
    "metadata": (_OBJECT, "", _SEND),
    "timeout_ms": (COUNT_SCHEMA, "A deadline for the whole call.", _REMOTE),
    "service_parameters": (TEXT_MAP_SCHEMA, "Extra request headers.", _REMOTE),
}
"""The schema and the description of each field, and the actions that have it."""

ALLOWED_FIELDS = {
    action: {name for name, (_, _, actions) in _FIELDS.items() if action in actions}
    for action in _ACTIONS
}
"""The fields of each action."""


def request_schema(aliases: Sequence[str]) -> JsonObject:
    """The schema of a request when these targets are configured."""
    properties = {
        name: _described(schema, description) if description else schema
        for name, (schema, description, _) in _FIELDS.items()
    }
    if aliases:
        properties["target_alias"]["enum"] = list(aliases)
    return closed_schema(properties, ["action"])
