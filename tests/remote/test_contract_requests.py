"""The contract of the tool about input: configuration, requests, targets."""

import jsonschema_rs
import pytest
from tests.remote.scripted_peer import message, result, scripted, task
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import config_schema, parse_config

TEXT = [{"kind": "text", "text": "hi"}]
CARD = "/.well-known/agent-card.json"
NEVER_MS = 2**53 - 1
PUBLISHED = {
    "enabled": False,
    "defaults": {
        "timeoutMs": 120_000,
        "cardPath": CARD,
        "preferredTransports": ["JSONRPC", "HTTP+JSON"],
        "serviceParameters": {},
    },
    "targets": [],
    "taskHandles": {"ttlMs": 86_400_000, "maxEntries": 1000},
    "policy": {
        "acceptedOutputModes": [],
        "normalizeBaseUrl": True,
        "enforceSupportedTransports": True,
        "allowTargetUrlOverride": False,
    },
}


# -------------------------------------------------------------------- 1 description


@pytest.mark.requirement("remote.describe.targets")
@pytest.mark.parametrize("is_free", [True, False])
async def test_the_description_lists_the_targets(is_free: bool) -> None:
    policy = {"allowTargetUrlOverride": is_free}
    plain = {"targets": [target("http://a", "ops"), target("http://b", "lab")], "policy": policy}
    async with open_tool(plain) as harness:
        words = harness.tool.description
    assert "ops, lab" in words and "none is the default" in words
    assert ("not allowed" in words) is not is_free
    plain["targets"][1]["default"] = True
    async with open_tool(plain) as harness:
        assert "the default is lab" in harness.tool.description


@pytest.mark.requirement("remote.describe.nothing")
async def test_the_description_without_targets_says_what_to_do() -> None:
    async with open_tool({}) as harness:
        words = harness.tool.description
    assert "No targets" in words
    assert "outbound.targets" in words and "allowTargetUrlOverride" in words
    async with open_tool({"policy": {"allowTargetUrlOverride": True}}) as harness:
        assert "No targets" in harness.tool.description
        assert "target_url" in harness.tool.description


# -------------------------------------------------------------------- 2 configuration


def _defaults_in(schema: JsonObject) -> Json:
    if "properties" in schema and "default" not in schema:
        members = schema["properties"].items()
        return {name: _defaults_in(member) for name, member in members}
    return schema.get("default")


@pytest.mark.requirement("remote.schema.defaults", "remote.config.defaults")
def test_the_schema_has_the_defaults_that_are_used() -> None:
    envelope = _defaults_in(config_schema())
    for name, value in PUBLISHED.items():
        if isinstance(value, dict):
            assert {key: envelope[name][key] for key in value} == value
        else:
            assert envelope[name] == value
    assert parse_config(envelope) == parse_config(PUBLISHED) == parse_config({})


@pytest.mark.requirement("remote.schema.counts", "remote.schema.choices")
@pytest.mark.parametrize(
    "wrong",
    [
        {"defaults": {"timeoutMs": 0}},
        {"defaults": {"timeoutMs": 1.5}},
        {"taskHandles": {"ttlMs": 0}},
        {"taskHandles": {"maxEntries": "many"}},
        {"defaults": {"preferredTransports": ["SOAP"]}},
        {"defaults": {"serviceParameters": {"a": 1}}},
        {"targets": [{"alias": "a"}]},
        {"targets": [{"baseUrl": "http://x"}]},
        {"targets": [{"alias": "a", "baseUrl": "http://x", "preferredTransports": ["x"]}]},
    ],
)
def test_the_schema_rejects_values_out_of_bounds(wrong: JsonObject) -> None:
    check = jsonschema_rs.Draft202012Validator(config_schema())
    assert not check.is_valid(wrong)
    assert check.is_valid({"defaults": {"preferredTransports": ["GRPC"], "timeoutMs": 1}})


@pytest.mark.requirement("remote.config.targets-fail")
def test_null_targets_are_an_error() -> None:
    with pytest.raises(TypeError, match=r"^Invalid openclaw-a2a-outbound config: targets"):
        parse_config({"targets": None})


@pytest.mark.requirement("remote.config.wrong-value")
def test_a_blank_or_wrong_value_is_the_default_for_its_key_alone() -> None:
    read = parse_config(
        {
            "enabled": "yes",
            "defaults": {"cardPath": "  ", "timeoutMs": 5.0},
            "taskHandles": {"ttlMs": [], "maxEntries": 7},
            "policy": {"normalizeBaseUrl": 0, "allowTargetUrlOverride": "true"},
            "targets": [{**target("http://x"), "default": "yes", "tags": "a", "examples": {}}],
        }
    )
    plain = parse_config({})
    assert (read.enabled, read.policy) == (False, plain.policy)
    assert read.defaults.card_path == CARD
    assert read.defaults.timeout_ms == 5, "a whole number, however it is spelled"
    assert (read.task_handles.ttl_ms, read.task_handles.max_entries) == (86_400_000, 7)
    assert read.default_target is None
    assert (read.targets[0].tags, read.targets[0].examples) == ((), ())


@pytest.mark.requirement("remote.config.target-lists")
def test_the_lists_of_a_target_are_cleaned() -> None:
    entry = {
        **target("http://x"),
        "examples": [" one ", "one", " ", 3],
        "tags": ["b", "a", "b "],
        "preferredTransports": [" HTTP+JSON ", "x", "HTTP+JSON", "JSONRPC"],
    }
    [read] = parse_config({"targets": [entry]}).targets
    assert (read.examples, read.tags) == (("one",), ("b", "a"))
    assert [one.value for one in read.preferred_transports] == ["HTTP+JSON", "JSONRPC"]


@pytest.mark.requirement("remote.handle.life")
async def test_a_huge_handle_ttl_is_accepted() -> None:
    async with scripted(result(task("WORKING"))) as peer:
        config = {**one_target(peer.url), "taskHandles": {"ttlMs": NEVER_MS}}
        async with open_tool(config) as harness:
            started = await harness.send("hi")
            assert started["ok"], started
            harness.advance(50 * 365 * 86_400)
            peer.answer = result(task("WORKING")["task"])
            handle = started["summary"]["continuation"]["task"]["task_handle"]
            assert (await harness.execute("status", task_handle=handle))["ok"]


@pytest.mark.requirement("remote.wire.deadline")
@pytest.mark.parametrize("limit", [NEVER_MS, 10**400, 60_000.0], ids=["years", "ever", "float"])
async def test_every_timeout_that_the_schema_allows_works(limit: float) -> None:
    async with scripted(result(message())) as peer:
        config = one_target(peer.url)
        config["defaults"]["timeoutMs"] = limit
        async with open_tool(config) as harness:
            assert (await harness.execute("list_targets"))["ok"]
            assert (await harness.send("hi"))["ok"]
            assert (await harness.send("hi", timeout_ms=limit))["ok"]


# -------------------------------------------------------------------- 2 policy


@pytest.mark.requirement("remote.policy.as-written", "remote.policy.same-url")
@pytest.mark.parametrize("normalizes", [True, False])
async def test_address_comparison_follows_the_policy(normalizes: bool) -> None:
    async with scripted(result(message())) as peer:
        written = f" {peer.url.rstrip('/')} "
        config = one_target(written, policy={"normalizeBaseUrl": normalizes})
        async with open_tool(config) as harness:
            exact = await harness.send("hi", target_url=written.strip())
            assert exact["summary"]["target_alias"] == "peer"
            shown = peer.url if normalizes else written.strip()
            assert exact["summary"]["target_url"] == shown
            other = await harness.send("hi", target_url=peer.url)
            assert other["ok"] is normalizes
            named = {
                "target_url": peer.url,
                "card_path": CARD,
                "preferred_transports": ["JSONRPC", "HTTP+JSON"],
            }
            continuing = {"target": named, "conversation": {"context_id": "c-1"}}
            assert (await harness.send("hi", continuation=continuing))["ok"] is normalizes


# -------------------------------------------------------------------- 3.1, 3.2 fields

ASKING = {"target_alias", "target_url", "task_handle", "task_id", "continuation"}
LIMITS = {"timeout_ms", "service_parameters"}
SAYING = {
    *("parts", "message_id", "context_id", "reference_task_ids", "task_requirement"),
    *("follow_updates", "accepted_output_modes", "blocking", "history_length"),
    *("push_notification_config", "metadata"),
}
TAKES: dict[str, set[str]] = {
    "list_targets": set(),
    "send": ASKING | LIMITS | SAYING,
    "watch": ASKING | LIMITS,
    "status": ASKING | LIMITS | {"history_length"},
    "cancel": ASKING | LIMITS,
}
WHOLE = {"target_url": "http://127.0.0.1:1/", "card_path": "/c", "preferred_transports": ["GRPC"]}
GOOD: JsonObject = {
    "target_alias": "peer",
    "target_url": "http://127.0.0.1:1",
    "task_handle": "rah_1-A",
    "task_id": "t",
    "continuation": {"target": WHOLE, "task": {"task_id": "t"}},
    "parts": TEXT,
    "message_id": "m",
    "context_id": "c",
    "reference_task_ids": ["t"],
    "task_requirement": "required",
    "follow_updates": False,
    "accepted_output_modes": [],
    "blocking": True,
    "history_length": 0,
    "push_notification_config": {
        "url": "https://x.example",
        "id": "i",
        "token": "t",
        "authentication": {"schemes": ["a"], "credentials": "c"},
    },
    "metadata": {},
    "timeout_ms": 1,
    "service_parameters": {"a": "b"},
}


@pytest.mark.requirement("remote.request.allowed", "remote.request.fields")
@pytest.mark.parametrize("action", TAKES)
@pytest.mark.parametrize("name", GOOD)
async def test_every_action_takes_its_own_fields(action: str, name: str) -> None:
    needed = {"send": {"parts": TEXT}, "list_targets": {}}.get(action, {"task_handle": "rah_gone"})
    needed = {} if name == "continuation" and action != "send" else needed
    async with open_tool(one_target("http://127.0.0.1:1/")) as harness:
        envelope = await harness.execute(action, **{**needed, name: GOOD[name]})
    refused = not envelope["ok"] and envelope["error"]["code"] == "VALIDATION_ERROR"
    assert refused is (name not in TAKES[action]), envelope


BAD_FIELDS: list[tuple[str, Json]] = [
    ("target_url", "https://with space"),
    ("task_handle", "rah_"),
    ("task_handle", "rah_a_b"),
    ("task_id", 7),
    ("message_id", ""),
    ("context_id", ""),
    ("context_id", None),
    ("reference_task_ids", [""]),
    ("reference_task_ids", "t-1"),
    ("task_requirement", None),
    ("follow_updates", 1),
    ("accepted_output_modes", [""]),
    ("accepted_output_modes", "text/plain"),
    ("blocking", None),
    ("history_length", "3"),
    ("history_length", 1.5),
    ("metadata", "x"),
    ("timeout_ms", True),
    ("service_parameters", {"a": None}),
    ("parts", {"kind": "text", "text": "hi"}),
    ("continuation", "t-1"),
]
PUSH = "push_notification_config"
BAD_PUSHES: list[JsonObject] = [
    {"url": "no address"},
    {"url": "https://x.example", "more": 1},
    {"url": "https://x.example", "id": 7},
    {"url": "https://x.example", "authentication": {}},
    {"url": "https://x.example", "authentication": {"schemes": []}},
    {"url": "https://x.example", "authentication": {"schemes": ["a"], "user": "me"}},
]


@pytest.mark.requirement("remote.request.fields", "remote.request.untouched", "remote.parts.push")
@pytest.mark.parametrize(
    ("name", "value"), BAD_FIELDS + [(PUSH, one) for one in BAD_PUSHES], ids=repr
)
async def test_a_value_out_of_bounds_is_reported_with_its_path(name: str, value: Json) -> None:
    async with open_tool(one_target("http://127.0.0.1:1/")) as harness:
        error = await harness.fail("send", **{"parts": TEXT, name: value})
    assert error["code"] == "VALIDATION_ERROR"
    errors = error["details"]["errors"]
    assert any(one["instancePath"].startswith(f"/{name}") for one in errors)
    assert not any(one["schemaPath"].startswith("#/runtime") for one in errors)


BAD_CONTINUATIONS: list[tuple[JsonObject, str, str]] = [
    ({}, "/continuation", "required"),
    *(
        ({"target": {k: v for k, v in WHOLE.items() if k != name}}, "/continuation/target", word)
        for name, word in zip(WHOLE, ["required"] * 3, strict=True)
    ),
    (
        {"target": {**WHOLE, "preferred_transports": []}},
        "/continuation/target/preferred_transports",
        "minItems",
    ),
    (
        {"target": {**WHOLE, "preferred_transports": ["SOAP"]}},
        "/continuation/target/preferred_transports/0",
        "enum",
    ),
    ({"target": {**WHOLE, "x": 1}}, "/continuation/target", "additionalProperties"),
    ({"target": WHOLE, "x": 1}, "/continuation", "additionalProperties"),
    ({"target": WHOLE, "task": {}}, "/continuation/task", "required"),
    (
        {"target": WHOLE, "task": {"task_id": "t", "x": 1}},
        "/continuation/task",
        "additionalProperties",
    ),
    ({"target": WHOLE, "conversation": {}}, "/continuation/conversation", "required"),
    (
        {"target": WHOLE, "conversation": {"context_id": "c", "can_send": False}},
        "/continuation/conversation/can_send",
        "const",
    ),
    (
        {"target": WHOLE, "conversation": {"context_id": "c", "x": 1}},
        "/continuation/conversation",
        "additionalProperties",
    ),
]


@pytest.mark.requirement("remote.continuation.shape", "remote.continuation.closed")
@pytest.mark.parametrize(("continuation", "opened", "keyword"), BAD_CONTINUATIONS)
async def test_an_incomplete_continuation_is_reported_with_its_path(
    continuation: JsonObject, opened: str, keyword: str
) -> None:
    async with open_tool({}) as harness:
        error = await harness.fail("send", parts=TEXT, continuation=continuation)
    found = [(one["instancePath"], one["keyword"]) for one in error["details"]["errors"]]
    assert found == [(opened, keyword)]


@pytest.mark.requirement("remote.validate.stages")
async def test_rules_are_checked_only_after_the_schema() -> None:
    async with open_tool({}) as harness:
        first = await harness.fail("send", blocking=True, follow_updates=True, timeout_ms=0)
        second = await harness.fail("send", blocking=True, follow_updates=True, timeout_ms=1)
    assert [one["instancePath"] for one in first["details"]["errors"]] == ["/timeout_ms"]
    envelope = [(one["instancePath"], one["keyword"]) for one in second["details"]["errors"]]
    assert envelope == [("", "required"), ("/blocking", "not"), ("", "anyOf")]


@pytest.mark.requirement("remote.validate.alone", "remote.validate.all")
@pytest.mark.parametrize("action", ["watch", "status", "cancel"])
async def test_a_context_with_a_continuation_gives_two_errors_for_a_status(
    action: str,
) -> None:
    continuing = {"target": WHOLE, "task": {"task_id": "t"}}
    async with open_tool({}) as harness:
        error = await harness.fail(action, continuation=continuing, context_id="c")
    envelope = [(one["instancePath"], one["params"]) for one in error["details"]["errors"]]
    named = {"property": "context_id", "action": action}
    assert envelope == [("", named), ("/context_id", named)]


@pytest.mark.requirement("remote.validate.nobody")
async def test_a_context_alone_names_no_target() -> None:
    async with open_tool({"targets": [target("http://127.0.0.1:1/")]}) as harness:
        error = await harness.fail_send(context_id="c-1")
    [envelope] = error["details"]["errors"]
    assert (envelope["keyword"], envelope["schemaPath"]) == ("anyOf", "#/runtime/anyOf")
    assert "default target" in envelope["message"]
