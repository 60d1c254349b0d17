"""Validation in two stages, each with all its errors in the form of Ajv."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.remote.config import parse_config
from openclaw_a2a.remote.request_validation import (
    ALLOWED_FIELDS,
    RequestValidator,
    requested_action,
)
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import TargetDirectory

OPS = {"alias": "ops", "baseUrl": "https://ops.example"}
TEXT = [{"kind": "text", "text": "hi"}]
TARGET = {
    "target_url": "https://ops.example/",
    "card_path": "/card",
    "preferred_transports": ["JSONRPC"],
}


def validator(*targets: dict[str, object], **policy: object) -> RequestValidator:
    config = parse_config({"targets": list(targets), "policy": policy})
    return RequestValidator(config, TargetDirectory(config, {}))


def errors(request: object, checks: RequestValidator | None = None) -> list[dict[str, Any]]:
    with pytest.raises(RemoteFailure) as raised:
        (checks or validator(OPS)).check(request)
    failure = raised.value
    assert failure.code is ErrorCode.VALIDATION
    assert failure.message == "remote_agent input validation failed"
    assert failure.details["source"] == "ajv"
    assert failure.details["tool"] == "remote_agent"
    for error in failure.details["errors"]:
        assert set(error) == {"instancePath", "schemaPath", "keyword", "params", "message"}
        assert error["message"]
    return failure.details["errors"]


def outcome(request: object, checks: RequestValidator | None = None) -> list[tuple[str, str]]:
    return [(error["instancePath"], error["keyword"]) for error in errors(request, checks)]


@pytest.mark.requirement("remote.validate.envelope")
@pytest.mark.parametrize("request_", [None, [], "send", 5, True])
def test_a_request_must_be_an_object(request_: object) -> None:
    (error,) = errors(request_)
    assert (error["keyword"], error["params"]) == ("type", {"type": "object"})


@pytest.mark.requirement(
    "remote.request.fields",
    "remote.request.unknown-field",
    "remote.request.alias",
    "remote.validate.envelope",
)
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, [("", "required")]),
        ({"action": "fly"}, [("/action", "enum")]),
        ({"action": "send", "parts": []}, [("/parts", "minItems")]),
        ({"action": "send", "parts": TEXT, "target_alias": ""}, [("/target_alias", "enum")]),
        ({"action": "status", "task_handle": "x"}, [("/task_handle", "pattern")]),
        ({"action": "status", "task_id": ""}, [("/task_id", "minLength")]),
        ({"action": "status", "task_id": "t", "timeout_ms": 0}, [("/timeout_ms", "minimum")]),
        ({"action": "status", "task_id": "t", "timeout_ms": "5"}, [("/timeout_ms", "type")]),
        ({"action": "status", "task_id": "t", "timeout_ms": 1.5}, [("/timeout_ms", "type")]),
        (
            {"action": "status", "task_id": "t", "history_length": -1},
            [("/history_length", "minimum")],
        ),
        ({"action": "send", "parts": TEXT, "blocking": "yes"}, [("/blocking", "type")]),
        (
            {"action": "send", "parts": TEXT, "task_requirement": "maybe"},
            [("/task_requirement", "enum")],
        ),
        (
            {"action": "send", "parts": TEXT, "reference_task_ids": []},
            [("/reference_task_ids", "minItems")],
        ),
        ({"action": "send", "parts": TEXT, "metadata": []}, [("/metadata", "type")]),
        (
            {"action": "send", "parts": TEXT, "service_parameters": {"a": 1}},
            [("/service_parameters/a", "type")],
        ),
        (
            {"action": "send", "parts": TEXT, "push_notification_config": {}},
            [("/push_notification_config", "required")],
        ),
        ({"action": "list_targets", "nope": 1, "also": 2}, [("", "additionalProperties")] * 2),
    ],
)
def test_schema_errors_have_path_and_keyword(
    request_: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    found = outcome(request_)
    for one in expected:
        assert one in found


@pytest.mark.requirement("remote.request.url")
def test_a_target_url_must_be_an_http_address() -> None:
    request = {"action": "send", "parts": TEXT, "target_url": "ftp://x"}
    assert ("/target_url", "pattern") in outcome(request)
    request["target_url"] = "not an address"
    assert {("/target_url", "pattern"), ("/target_url", "format")} <= set(outcome(request))


@pytest.mark.requirement("remote.parts.kinds", "remote.parts.closed", "remote.parts.file-source")
@pytest.mark.parametrize(
    ("part", "keyword"),
    [
        ({"kind": "text"}, "required"),
        ({"kind": "text", "text": "a", "input": "b"}, "additionalProperties"),
        ({"kind": "text", "text": "a", "attachments": []}, "additionalProperties"),
        ({"kind": "file", "name": "a"}, "anyOf"),
        ({"kind": "file", "uri": "no address"}, "format"),
        ({"kind": "data", "data": []}, "type"),
        ({"kind": "video"}, "oneOf"),
        ({}, "oneOf"),
    ],
)
def test_a_part_that_matches_no_kind_is_reported_with_its_errors(
    part: dict[str, object], keyword: str
) -> None:
    found = [error["keyword"] for error in errors({"action": "send", "parts": [part]})]
    assert keyword in found
    assert "oneOf" in found


@pytest.mark.requirement("remote.validate.all")
def test_all_schema_errors_are_reported_together() -> None:
    request = {"action": "send", "parts": [{}], "timeout_ms": 0, "x": 1}
    places = {opened for opened, _ in outcome(request)}
    assert {"/parts/0", "/timeout_ms", ""} <= places


# ------------------------------------------------------------------ stage two


@pytest.mark.requirement("remote.request.allowed", "remote.validate.not-allowed")
@pytest.mark.parametrize("action", sorted(ALLOWED_FIELDS))
def test_a_field_of_another_action_is_rejected(action: str) -> None:
    every = set().union(*ALLOWED_FIELDS.values()) - {"action", "continuation"}
    samples: dict[str, object] = {
        "parts": TEXT,
        "reference_task_ids": ["a"],
        "task_requirement": "optional",
        "follow_updates": False,
        "accepted_output_modes": [],
        "blocking": False,
        "history_length": 1,
        "push_notification_config": {"url": "https://x.example"},
        "metadata": {},
        "timeout_ms": 1,
        "service_parameters": {},
        "target_alias": "ops",
        "target_url": "https://ops.example",
        "task_handle": "rah_1",
    }
    for name in sorted(every - ALLOWED_FIELDS[action]):
        found = errors({"action": action, name: samples.get(name, "x")})
        (error,) = [one for one in found if one["params"] == {"property": name, "action": action}]
        assert (error["instancePath"], error["keyword"]) == ("", "not")
        assert error["schemaPath"] == "#/runtime/not"
        assert f'"{name}"' in error["message"]
        assert f"action={action}" in error["message"]


@pytest.mark.requirement("remote.validate.alone")
def test_a_continuation_excludes_other_target_fields() -> None:
    request: dict[str, object] = {
        "action": "send",
        "parts": TEXT,
        "continuation": {"target": TARGET, "conversation": {"context_id": "c"}},
        "task_handle": "rah_1",
        "task_id": "t",
        "context_id": "c",
        "target_alias": "ops",
        "target_url": "https://ops.example",
    }
    found = {error["instancePath"]: error for error in errors(request)}
    assert set(found) == {"/task_handle", "/task_id", "/context_id", "/target_alias", "/target_url"}
    for opened, error in found.items():
        assert error["keyword"] == "not"
        assert error["params"] == {"property": opened[1:], "action": "send"}
        assert "continuation" in error["message"]


@pytest.mark.requirement("remote.validate.parts")
def test_a_send_needs_parts() -> None:
    (error,) = errors({"action": "send", "target_alias": "ops"})
    assert error["params"] == {"missingProperty": "parts"}
    assert error["schemaPath"] == "#/runtime/required"
    assert "parts" in error["message"]


@pytest.mark.requirement("remote.validate.blocking")
@pytest.mark.parametrize("blocking", [True, False])
def test_following_updates_excludes_blocking(blocking: bool) -> None:
    request = {
        "action": "send",
        "parts": TEXT,
        "target_alias": "ops",
        "follow_updates": True,
        "blocking": blocking,
    }
    (error,) = errors(request)
    assert (error["instancePath"], error["keyword"]) == ("/blocking", "not")
    assert "blocking" in error["message"]
    assert "follow_updates" in error["message"]


@pytest.mark.requirement("remote.validate.bare")
def test_a_send_with_a_bare_continuation_needs_a_task_or_a_conversation() -> None:
    (error,) = errors({"action": "send", "parts": TEXT, "continuation": {"target": TARGET}})
    assert (error["instancePath"], error["keyword"]) == ("/continuation", "anyOf")
    assert "continuation.task" in error["message"]
    assert "continuation.conversation" in error["message"]


@pytest.mark.requirement("remote.validate.nobody", "remote.request.untouched")
def test_a_send_needs_a_target_unless_there_is_a_default() -> None:
    (error,) = errors({"action": "send", "parts": TEXT, "task_id": "t"})
    assert (error["instancePath"], error["keyword"]) == ("", "anyOf")
    for word in ("task_handle", "target_alias", "target_url", "default target"):
        assert word in error["message"]
    request = {"action": "send", "parts": TEXT}
    assert validator({**OPS, "default": True}).check(request) == request


@pytest.mark.requirement(
    "remote.validate.no-task", "remote.validate.unnamed-task", "remote.validate.task-alone"
)
@pytest.mark.parametrize("action", ["watch", "status", "cancel"])
def test_watch_status_and_cancel_need_a_task(action: str) -> None:
    (error,) = errors({"action": action, "continuation": {"target": TARGET}})
    assert (error["instancePath"], error["keyword"]) == ("/continuation", "required")
    assert error["params"] == {"missingProperty": "task"}
    assert action in error["message"]
    assert "continuation.task.task_id" in error["message"]

    (error,) = errors({"action": action, "target_alias": "ops"})
    assert (error["instancePath"], error["keyword"]) == ("", "anyOf")
    assert all(word in error["message"] for word in (action, "task_handle", "task_id"))

    (error,) = errors({"action": action, "task_id": "t"})
    assert (error["instancePath"], error["keyword"]) == ("", "anyOf")
    for word in ("target_alias", "target_url", "default target"):
        assert word in error["message"]


@pytest.mark.requirement("remote.validate.no-alias")
def test_an_alias_without_configured_targets_is_rejected_by_the_rules() -> None:
    (error,) = errors({"action": "send", "parts": TEXT, "target_alias": "x"}, validator())
    assert (error["instancePath"], error["keyword"]) == ("/target_alias", "enum")
    assert error["params"] == {"allowedValues": []}
    assert error["schemaPath"] == "#/runtime/enum"
    assert "alias" in error["message"]


@pytest.mark.requirement("remote.validate.policy")
def test_another_address_is_refused_by_policy_and_passes_when_allowed() -> None:
    request = {"action": "send", "parts": TEXT, "target_url": "https://else.example"}
    (error,) = errors(request)
    assert (error["instancePath"], error["keyword"]) == ("/target_url", "anyOf")
    assert error["params"] == {
        "allowTargetUrlOverride": False,
        "configuredTargetAliases": ["ops"],
    }
    assert "policy" in error["message"]
    assert validator(OPS, allowTargetUrlOverride=True).check(request) == request


@pytest.mark.requirement("remote.policy.same-url")
@pytest.mark.parametrize(
    "url", ["https://ops.example", "https://OPS.example:443/", "https://ops.example:443"]
)
def test_a_configured_address_is_accepted_in_any_spelling(url: str) -> None:
    request = {"action": "send", "parts": TEXT, "target_url": url}
    assert validator(OPS).check(request) == request


@pytest.mark.requirement("remote.validate.references")
def test_a_task_may_come_with_references_to_others() -> None:
    request = {
        "action": "send",
        "parts": TEXT,
        "target_alias": "ops",
        "task_id": "t",
        "reference_task_ids": ["u"],
    }
    assert validator(OPS).check(request) == request


@pytest.mark.requirement("remote.validate.action")
@pytest.mark.parametrize(
    ("request_", "action"),
    [
        ({"action": "send"}, "send"),
        ({"action": "x"}, "x"),
        ({"action": 1}, "unknown"),
        ([], "unknown"),
    ],
)
def test_a_failure_names_the_action_when_it_is_a_string(request_: object, action: str) -> None:
    assert requested_action(request_) == action


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)
_FIELDS = sorted(set().union(*ALLOWED_FIELDS.values()))


@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=6) | _JSON)
def test_any_request_is_accepted_or_fails_with_errors(request_: object) -> None:
    try:
        validator(OPS).check(request_)
    except RemoteFailure as failure:
        assert failure.code is ErrorCode.VALIDATION
        assert failure.details["errors"]


@pytest.mark.parametrize(
    ("member", "value", "params"),
    [
        ("timeout_ms", 0, {"comparison": ">=", "limit": 1}),
        ("history_length", -1, {"comparison": ">=", "limit": 0}),
        ("history_length", 2**31, {"comparison": "<=", "limit": 2**31 - 1}),
    ],
)
def test_an_error_about_a_number_says_how_it_was_compared(
    member: str, value: int, params: dict[str, Any]
) -> None:
    with pytest.raises(RemoteFailure) as raised:
        validator(OPS).check({"action": "status", "task_id": "t", member: value})
    [error] = raised.value.details["errors"]
    assert error["params"] == params
    assert f"{params['comparison']} {params['limit']}" in error["message"]
