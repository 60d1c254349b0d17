"""Parsing of the outbound section: defaults for wrong values, errors for wrong targets."""

import json

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.remote.config import (
    ERROR_PREFIX,
    ContinuationTargets,
    OutboundConfig,
    Transport,
    config_schema,
    parse_config,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.requirement("remote.config.no-object")
@pytest.mark.parametrize("value", [None, "text", 7, [], [1], True])
def test_a_section_that_is_not_an_object_gives_the_defaults(value: object) -> None:
    assert parse_config(value) == OutboundConfig()


@pytest.mark.requirement("remote.config.defaults")
def test_the_defaults_are_those_that_are_published() -> None:
    config = parse_config({})
    assert not config.enabled
    assert config.defaults.timeout_ms == 120_000
    assert config.defaults.card_path == "/.well-known/agent-card.json"
    assert config.defaults.preferred_transports == (Transport.JSONRPC, Transport.HTTP_JSON)
    assert config.task_handles.ttl_ms == 86_400_000
    assert config.task_handles.max_entries == 1000
    assert config.policy.normalize_base_url
    assert config.policy.enforce_supported_transports
    assert not config.policy.allow_target_url_override
    assert config.policy.continuation_targets is ContinuationTargets.CONFIGURED


@pytest.mark.requirement("remote.config.wrong-value")
@pytest.mark.parametrize("value", ["5", 0, -1, 1.5, True, None, [], {}])
def test_an_invalid_number_becomes_the_default(value: object) -> None:
    config = parse_config({"defaults": {"timeoutMs": value}, "taskHandles": {"ttlMs": value}})
    assert config.defaults.timeout_ms == 120_000
    assert config.task_handles.ttl_ms == 86_400_000


@pytest.mark.requirement("remote.config.transports")
def test_transports_keep_known_values_in_order_and_fall_back_when_none_is_left() -> None:
    def read(value: object) -> tuple[Transport, ...]:
        return parse_config(
            {"defaults": {"preferredTransports": value}}
        ).defaults.preferred_transports

    assert read(["GRPC", "x", "JSONRPC", "GRPC"]) == (Transport.GRPC, Transport.JSONRPC)
    assert read(["x"]) == read("JSONRPC") == (Transport.JSONRPC, Transport.HTTP_JSON)


@pytest.mark.requirement("remote.config.parameters", "remote.config.output-modes")
def test_service_parameters_and_output_modes_keep_only_what_is_text() -> None:
    config = parse_config(
        {
            "defaults": {"serviceParameters": {"a": "1", "b": 2, "c": None}},
            "policy": {"acceptedOutputModes": ["text/plain", " ", 4, "text/plain"]},
        }
    )
    assert config.defaults.service_parameters == {"a": "1"}
    assert config.policy.accepted_output_modes == ("text/plain",)


@pytest.mark.requirement("remote.config.target-texts")
def test_a_target_is_trimmed_and_filled_from_the_defaults() -> None:
    entry = {
        "alias": " ops ",
        "baseUrl": " https://ops.example ",
        "description": "  ",
        "cardPath": " ",
        "tags": [" a ", "", "a", 5],
        "default": True,
    }
    config = parse_config(
        {
            "defaults": {"cardPath": "/card", "preferredTransports": ["HTTP+JSON"]},
            "targets": [entry],
        }
    )
    (target,) = config.targets
    assert (target.alias, target.base_url, target.description) == (
        "ops",
        "https://ops.example",
        None,
    )
    assert (target.card_path, target.tags) == ("/card", ("a",))
    assert target.preferred_transports == (Transport.HTTP_JSON,)
    assert config.default_target is target


@pytest.mark.requirement(
    "remote.config.targets-fail", "remote.config.duplicate-alias", "remote.config.two-defaults"
)
@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({}, ["targets"]),
        ("x", ["targets"]),
        ([5], ["targets[0]"]),
        ([{"baseUrl": "x"}], ["targets[0].alias"]),
        ([{"alias": " ", "baseUrl": "x"}], ["targets[0].alias"]),
        ([{"alias": "a"}], ["targets[0].baseUrl"]),
        (
            [{"alias": "a", "baseUrl": "x"}, {"alias": " a ", "baseUrl": "y"}],
            ['duplicate alias "a"'],
        ),
        (
            [
                {"alias": "a", "baseUrl": "x", "default": True},
                {"alias": "b", "baseUrl": "y", "default": True},
            ],
            ["multiple default entries", '"a"', '"b"'],
        ),
        ([{"alias": "a", "baseUrl": "x", "auth": 1}], ["targets[0].auth"]),
        ([{"alias": "a", "baseUrl": "x", "auth": {"type": "basic", "token": "t"}}], ["auth.type"]),
        ([{"alias": "a", "baseUrl": "x", "auth": {"type": "bearer"}}], ["auth.token"]),
    ],
)
def test_invalid_targets_fail_with_their_path(targets: object, words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        parse_config({"targets": targets})
    assert str(raised.value).startswith(ERROR_PREFIX)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.requirement("remote.config.fresh")
def test_parsed_configurations_share_no_values() -> None:
    first = parse_config({"defaults": {"serviceParameters": {"a": "1"}}})
    first.defaults.service_parameters["b"] = "2"
    assert parse_config({}).defaults.service_parameters == {}
    assert parse_config({}).defaults.service_parameters is not first.defaults.service_parameters
    empty = parse_config({})
    empty.defaults.service_parameters["x"] = "y"
    assert parse_config({}).defaults.service_parameters == {}


@given(_JSON)
def test_any_json_without_targets_is_read(value: object) -> None:
    section = value if isinstance(value, dict) else {"defaults": value, "policy": value}
    section.pop("targets", None)
    config = parse_config(section)
    assert config.defaults.timeout_ms >= 1
    assert config.defaults.preferred_transports


def test_the_repr_of_a_configuration_has_no_secrets() -> None:
    entry = {"alias": "a", "baseUrl": "https://x", "auth": {"type": "bearer", "token": "s3cret"}}
    assert "s3cret" not in repr(parse_config({"targets": [entry]}))


@pytest.mark.requirement("remote.schema.closed")
def test_the_published_schema_takes_its_own_defaults_and_closes_every_object() -> None:
    schema = config_schema()
    jsonschema_rs.meta.validate(schema)

    def objects(node: object) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        if isinstance(node, dict):
            if "properties" in node:
                found.append(node)
            for member in node.values():
                found += objects(member)
        elif isinstance(node, list):
            for item in node:
                found += objects(item)
        return found

    assert all(one["additionalProperties"] is False for one in objects(schema))
    assert json.loads(json.dumps(schema)) == schema
