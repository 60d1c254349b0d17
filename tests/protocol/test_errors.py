"""The error table: complete, and right where the versions differ."""

import json

import pytest
from inline_snapshot import snapshot

from openclaw_a2a.model import errors as named
from openclaw_a2a.model.errors import GatewayError, Problem
from openclaw_a2a.protocol.errors import (
    A2A_DOMAIN,
    ERROR_TABLE,
    FAULT_MESSAGE,
    codes_of,
    http_status,
    rest_error,
    rpc_error,
)
from openclaw_a2a.protocol.versions import ProtocolVersion

EVERY_CLASS = [
    thing
    for thing in vars(named).values()
    if isinstance(thing, type) and issubclass(thing, GatewayError)
]


@pytest.mark.parametrize("kind", EVERY_CLASS)
def test_every_error_has_a_row_and_can_be_encoded_in_every_version(kind):
    error = kind("What happened.")
    assert kind in ERROR_TABLE
    for wire in ProtocolVersion:
        sent = json.loads(rpc_error(error, wire))
        assert isinstance(sent["code"], int)
        assert sent["message"]
    status, body = rest_error(error)
    sent = json.loads(body)["error"]
    assert sent["code"] == status == http_status(error, for_rpc=False)
    assert sent["details"][0]["reason"] == codes_of(error).reason(kind.code)
    assert sent["details"][0]["metadata"]["code"] == kind.code
    assert http_status(error, for_rpc=True) in (200, 401, 403, 408, 413, 415, 429, 431, 503)


@pytest.mark.parametrize(
    ("kind", "v1", "v03"),
    [
        (named.ParseFailed, -32700, -32700),
        (named.InvalidRequest, -32600, -32600),
        (named.MethodNotFound, -32601, -32601),
        (named.InvalidParams, -32602, -32602),
        (named.ContextMismatch, -32602, -32600),
        (named.TaskNotFound, -32001, -32001),
        (named.TaskTerminal, -32004, -32600),
        (named.TaskNotCancelable, -32002, -32002),
        (named.TaskNotWaiting, -32004, -32004),
        (named.TaskNotLive, -32002, -32004),
        (named.TaskUnbound, -32004, -32004),
        (named.UnsupportedOperation, -32004, -32004),
        (named.PushNotSupported, -32003, -32003),
        (named.PartNotAccepted, -32005, -32602),
        (named.OutputNotAccepted, -32005, -32005),
        (named.MessageIdConflict, -32602, -32602),
        (named.ExtendedCardNotConfigured, -32007, -32004),
        (named.ExtensionRequired, -32008, -32603),
        (named.VersionNotSupported, -32009, -32009),
        (named.Overloaded, -32000, -32000),
        (named.Draining, -32000, -32000),
        (named.GatewayFault, -32603, -32603),
    ],
)
def test_each_version_has_its_own_code(kind, v1, v03):
    error = kind("x")
    assert json.loads(rpc_error(error, ProtocolVersion.V1))["code"] == v1
    assert json.loads(rpc_error(error, ProtocolVersion.V03))["code"] == v03


def test_the_protocol_s_own_errors_are_named_as_the_official_sdk_names_them():
    from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP

    ours = {names.reason("") for names in ERROR_TABLE.values() if names.domain == A2A_DOMAIN}
    for kind, official in A2A_ERROR_MAPPING.items():
        if official.reason == "INVALID_AGENT_RESPONSE":
            continue
        exact = [
            names
            for names in ERROR_TABLE.values()
            if names.reason("") == official.reason and names.v1 == JSON_RPC_ERROR_CODE_MAP[kind]
        ]
        assert official.reason in ours
        assert (official.http_code, official.grpc_status) in {(n.http, n.grpc) for n in exact}


def test_http_statuses_that_clients_must_act_on():
    statuses = {
        kind: http_status(kind("x"), for_rpc=True)
        for kind in EVERY_CLASS
        if http_status(kind("x"), for_rpc=True) != 200
    }
    assert statuses == {
        named.Unauthenticated: 401,
        named.NotAllowed: 403,
        named.InsufficientScope: 403,
        named.BodyTooLarge: 413,
        named.ContentTooLarge: 413,
        named.BodyTooSlow: 408,
        named.HeadersTooLarge: 431,
        named.HeadersTooSlow: 408,
        named.MediaTypeNotSupported: 415,
        named.ContentCodingNotSupported: 415,
        named.Overloaded: 429,
        named.QuotaExceeded: 429,
        named.TooManyAttempts: 429,
        named.Draining: 503,
        named.IssuerUnavailable: 503,
        named.TooManyConnections: 503,
        named.AccountNotRunning: 503,
    }
    assert http_status(named.MessageIdConflict("x"), for_rpc=False) == 409


def test_an_error_in_1_0():
    assert json.loads(
        rpc_error(named.TaskNotFound("No task t-1."), ProtocolVersion.V1)
    ) == snapshot(
        {
            "code": -32001,
            "message": "No task t-1.",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"code": "task-not-found"},
                }
            ],
        }
    )


def test_invalid_params_name_every_field():
    error = named.InvalidParams("Bad.", problems=(Problem("message.parts", "is required"),))
    assert json.loads(rpc_error(error, ProtocolVersion.V1)) == snapshot(
        {
            "code": -32602,
            "message": "Bad.",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "INVALID_PARAMS",
                    "domain": "a2a-protocol.org",
                    "metadata": {"code": "invalid-params"},
                },
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [{"field": "message.parts", "description": "is required"}],
                },
            ],
        }
    )
    assert json.loads(rpc_error(error, ProtocolVersion.V03)) == snapshot(
        {
            "code": -32602,
            "message": "Bad.",
            "data": {"problems": [{"path": "message.parts", "message": "is required"}]},
        }
    )


def test_an_error_on_rest():
    status, body = rest_error(named.TaskNotFound("No task t-1."))
    assert (status, json.loads(body)) == snapshot(
        (
            404,
            {
                "error": {
                    "code": 404,
                    "status": "NOT_FOUND",
                    "message": "No task t-1.",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                            "reason": "TASK_NOT_FOUND",
                            "domain": "a2a-protocol.org",
                            "metadata": {"code": "task-not-found"},
                        }
                    ],
                }
            },
        )
    )


def test_output_modes_are_encoded_in_both_versions():
    details = {"acceptedOutputModes": ["image/png"], "availableOutputModes": ["text/plain", "a/b"]}
    error = named.OutputNotAccepted("Nothing fits.", details=details)
    assert json.loads(rpc_error(error, ProtocolVersion.V03))["data"] == details
    metadata = json.loads(rpc_error(error, ProtocolVersion.V1))["data"][0]["metadata"]
    assert metadata["acceptedOutputModes"] == "image/png"
    assert metadata["availableOutputModes"] == "text/plain, a/b"


def test_details_of_any_type_are_text_in_1_0():
    error = named.CallerError(
        "x", details={"s": "x", "n": 1.5, "mixed": ["a", 1], "object": {"k": None}}
    )
    metadata = json.loads(rpc_error(error, ProtocolVersion.V1))["data"][0]["metadata"]
    assert metadata == {
        "code": "invalid-request",
        "s": "x",
        "n": "1.5",
        "mixed": '["a",1]',
        "object": '{"k":null}',
    }


def test_a_0_3_error_without_details_has_no_data():
    assert json.loads(rpc_error(named.TaskNotFound("No."), ProtocolVersion.V03)) == {
        "code": -32001,
        "message": "No.",
    }


def test_an_unsupported_version_is_reported_in_the_1_0_format():
    error = named.VersionNotSupported("No.", details={"supportedVersions": ["1.0", "0.3"]})
    assert rpc_error(error, ProtocolVersion.V03) == rpc_error(error, ProtocolVersion.V1)


def test_a_fault_of_the_gateway_reveals_no_details():
    error = named.StoreLocked("pid 7 holds /secret/path", details={"path": "/secret/path"})
    for sent in (
        rpc_error(error, ProtocolVersion.V1),
        rpc_error(error, ProtocolVersion.V03),
        rest_error(error)[1],
    ):
        assert b"secret" not in sent
        assert FAULT_MESSAGE.encode() in sent


def test_an_error_class_from_elsewhere_gets_the_row_of_its_parent():
    class Stranger(named.TaskNotFound):
        pass

    assert codes_of(Stranger("x")) == ERROR_TABLE[named.TaskNotFound]
