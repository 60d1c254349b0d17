"""The JSON Schemas of the tool's request and of its configuration."""

from collections.abc import Sequence

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import CARD_PATH, DEFAULT_TRANSPORTS, Transport

ACTIONS = ("list_targets", "send", "watch", "status", "cancel")
HANDLE_PATTERN = r"^rah_[A-Za-z0-9-]+$"
_TRANSPORTS = [transport.value for transport in Transport]
_PREFERRED = [transport.value for transport in DEFAULT_TRANSPORTS]

_TEXT: JsonObject = {"type": "string", "minLength": 1}
_FLAG: JsonObject = {"type": "boolean"}
_OBJECT: JsonObject = {"type": "object"}
_URI: JsonObject = {"type": "string", "format": "uri"}
_COUNT: JsonObject = {"type": "integer", "minimum": 1}
_TEXT_MAP: JsonObject = {"type": "object", "additionalProperties": {"type": "string"}}


def _closed(properties: JsonObject, required: Sequence[str] = (), **more: Json) -> JsonObject:
    """An object that takes no other members."""
    schema: JsonObject = {"type": "object", "additionalProperties": False, **more}
    if required:
        schema["required"] = list(required)
    return {**schema, "properties": properties}


def _said(schema: JsonObject, description: str) -> JsonObject:
    return {**schema, "description": description}


_TEXT_PART = _closed(
    {"kind": {"const": "text"}, "text": {"type": "string"}, "metadata": _OBJECT},
    ["kind", "text"],
)
_FILE_PART = _closed(
    {
        "kind": {"const": "file"},
        "uri": _said(_URI, "Where the file is; wins over bytes."),
        "bytes": _said({"type": "string"}, "The file in base64."),
        "name": {"type": "string"},
        "mime_type": {"type": "string"},
        "metadata": _OBJECT,
    },
    ["kind"],
    anyOf=[{"required": ["uri"]}, {"required": ["bytes"]}],
)
_DATA_PART = _closed(
    {"kind": {"const": "data"}, "data": _OBJECT, "metadata": _OBJECT}, ["kind", "data"]
)
_PUSH = _closed(
    {
        "url": _URI,
        "id": {"type": "string"},
        "token": {"type": "string"},
        "authentication": _closed(
            {
                "schemes": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                "credentials": {"type": "string"},
            },
            ["schemes"],
        ),
    },
    ["url"],
)
_CONTINUATION = _closed(
    {
        "target": _closed(
            {
                "target_url": {**_URI, "pattern": "^https?://"},
                "card_path": _TEXT,
                "preferred_transports": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"enum": _TRANSPORTS},
                },
                "target_alias": _TEXT,
            },
            ["target_url", "card_path", "preferred_transports"],
        ),
        "task": _closed(
            {
                "task_id": _TEXT,
                "task_handle": {"type": "string", "pattern": HANDLE_PATTERN},
                "status": _TEXT,
                "can_resume_send": _FLAG,
                "can_send": _FLAG,
                "can_status": _FLAG,
                "can_cancel": _FLAG,
                "can_watch": _FLAG,
            },
            ["task_id"],
        ),
        "conversation": _closed({"context_id": _TEXT, "can_send": {"const": True}}, ["context_id"]),
    },
    ["target"],
)


def request_schema(aliases: Sequence[str]) -> JsonObject:
    """The schema of a request when these targets are configured."""
    alias: JsonObject = {**_TEXT, "enum": list(aliases)} if aliases else _TEXT
    part: JsonObject = {"oneOf": [_TEXT_PART, _FILE_PART, _DATA_PART]}
    return _closed(
        {
            "action": _said({"enum": list(ACTIONS)}, "What to do."),
            "target_alias": _said(alias, "A configured remote agent."),
            "target_url": _said(
                {**_URI, "pattern": "^https?://"}, "A remote agent by address, where allowed."
            ),
            "task_handle": _said(
                {"type": "string", "pattern": HANDLE_PATTERN}, "A handle of an earlier answer."
            ),
            "task_id": _said(_TEXT, "The peer's id of a task."),
            "continuation": _said(
                _CONTINUATION, "summary.continuation of an earlier answer, unchanged."
            ),
            "parts": _said(
                {"type": "array", "minItems": 1, "items": part}, "What to send (action=send)."
            ),
            "message_id": _said(_TEXT, "An id for the message; made when left out."),
            "context_id": _said(_TEXT, "The conversation to go on with."),
            "reference_task_ids": {"type": "array", "minItems": 1, "items": _TEXT},
            "task_requirement": _said(
                {"enum": ["optional", "required"]}, "required: only a task is an answer."
            ),
            "follow_updates": _said(_FLAG, "Follow the work until it ends (action=send)."),
            "accepted_output_modes": {"type": "array", "items": _TEXT},
            "blocking": _said(_FLAG, "Wait for the result; not with follow_updates."),
            "history_length": {"type": "integer", "minimum": 0},
            "push_notification_config": _PUSH,
            "metadata": _OBJECT,
            "timeout_ms": _said(_COUNT, "A deadline for the whole call."),
            "service_parameters": _said(_TEXT_MAP, "Extra request headers."),
        },
        ["action"],
    )


def config_schema() -> JsonObject:
    """The published schema of the configuration, with its defaults."""
    transports: JsonObject = {
        "type": "array",
        "items": {"enum": _TRANSPORTS},
        "default": _PREFERRED,
    }
    texts: JsonObject = {"type": "array", "items": {"type": "string"}, "default": []}
    auth = _closed({"type": {"enum": ["bearer", "apiKey"]}, "token": _TEXT}, ["type", "token"])
    target = _closed(
        {
            "alias": _TEXT,
            "baseUrl": _TEXT,
            "description": {"type": "string"},
            "tags": texts,
            "cardPath": {"type": "string", "default": CARD_PATH},
            "preferredTransports": transports,
            "examples": texts,
            "default": {**_FLAG, "default": False},
            "auth": auth,
            "allowedHosts": texts,
        },
        ["alias", "baseUrl"],
    )
    return _closed(
        {
            "enabled": {**_FLAG, "default": False},
            "defaults": _closed(
                {
                    "timeoutMs": {**_COUNT, "default": 120_000},
                    "cardPath": {"type": "string", "default": CARD_PATH},
                    "preferredTransports": transports,
                    "serviceParameters": {**_TEXT_MAP, "default": {}},
                }
            ),
            "targets": {"type": "array", "items": target, "default": []},
            "taskHandles": _closed(
                {
                    "ttlMs": {**_COUNT, "default": 86_400_000},
                    "maxEntries": {**_COUNT, "default": 1000},
                }
            ),
            "policy": _closed(
                {
                    "acceptedOutputModes": texts,
                    "normalizeBaseUrl": {**_FLAG, "default": True},
                    "enforceSupportedTransports": {**_FLAG, "default": True},
                    "allowTargetUrlOverride": {**_FLAG, "default": False},
                    "allowPrivateTargets": {**_FLAG, "default": False},
                    "continuationTargets": {
                        "enum": ["configured", "trusted"],
                        "default": "configured",
                    },
                    "transportFallback": {**_FLAG, "default": False},
                    "maxResultBytes": {**_COUNT, "default": 262_144},
                }
            ),
        }
    )
