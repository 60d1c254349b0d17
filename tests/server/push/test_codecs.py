"""Push configurations round-trip in both versions, and the official types accept them."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from a2a import types as v1_types
from a2a.compat.v0_3 import types as v03_types
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.delivery import PushConfig
from openclaw_a2a.model.errors import InvalidParams
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.requests import NewPushConfig
from openclaw_a2a.protocol.versions import ProtocolVersion

IDS = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)
HEADERS = st.from_regex(r"\A[!-~]([ -~]{0,38}[!-~])?\Z")
SCHEMES = st.from_regex(r"\A[A-Za-z0-9-]{1,20}\Z")


@st.composite
def configs(draw: st.DrawFn) -> PushConfig:
    schemes = tuple(draw(st.lists(SCHEMES, max_size=3)))
    return PushConfig(
        id=draw(IDS),
        task_id=TaskId(draw(IDS)),
        url=draw(st.from_regex(r"\Ahttps://[a-z]{1,9}\.example/[a-z?=&]{0,20}\Z")),
        version=draw(st.sampled_from([version.value for version in ProtocolVersion])),
        created_at=draw(st.datetimes(timezones=st.just(UTC))),
        token=draw(HEADERS | st.none()),
        schemes=schemes,
        credentials=draw(HEADERS | st.none()) if schemes else None,
    )


def as_sent(
    config: PushConfig,
    version: ProtocolVersion,
    schemes: tuple[str, ...],
    url_path: str = "url",
) -> NewPushConfig:
    return NewPushConfig(
        url=config.url,
        url_path=url_path,
        version=version,
        id=config.id,
        task_id=config.task_id,
        token=config.token,
        schemes=schemes,
        credentials=config.credentials,
    )


@given(configs())
def test_an_encoded_1_0_configuration_can_be_read_but_for_its_secrets(config: PushConfig) -> None:
    body = v1.encode_push_config(config)
    json_format.ParseDict(json.loads(body), v1_types.TaskPushNotificationConfig())
    public = msgspec.structs.replace(config, token=None, credentials=None)
    assert v1.decode_push_config(body) == as_sent(public, ProtocolVersion.V1, config.schemes[:1])
    page = json.loads(v1.encode_push_list([config, config], "next"))
    json_format.ParseDict(page, v1_types.ListTaskPushNotificationConfigsResponse())
    assert page == {"configs": [json.loads(body)] * 2, "nextPageToken": "next"}


@given(configs())
def test_an_encoded_0_3_configuration_can_be_read_but_for_its_secrets(config: PushConfig) -> None:
    body = v03.encode_push_config(config)
    v03_types.TaskPushNotificationConfig.model_validate_json(body)
    public = msgspec.structs.replace(config, token=None, credentials=None)
    assert v03.decode_push_config(body) == as_sent(
        public, ProtocolVersion.V03, config.schemes, "pushNotificationConfig.url"
    )
    assert json.loads(v03.encode_push_list([config], "")) == [json.loads(body)]


@given(configs())
def test_a_stored_configuration_round_trips_and_its_repr_hides_secrets(
    config: PushConfig,
) -> None:
    stored = encode_json(config)
    assert msgspec.json.decode(stored, type=PushConfig) == config
    secret = msgspec.structs.replace(config, token="SECRET-1", credentials="SECRET-2")
    assert "SECRET" not in repr(secret)
    assert "SECRET" not in repr(as_sent(secret, ProtocolVersion.V1, ()))


def test_the_operator_sees_only_the_host() -> None:
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    config = PushConfig(
        "c", TaskId("t"), "https://hooks.example.com:8443/secret?key=secret", "1.0", moment
    )
    assert config.host == "hooks.example.com:8443"


@pytest.mark.requirement("wire.push.token", "wire.push.authentication")
@pytest.mark.parametrize(
    "text", [" a", "a ", " ", "a\nb", "a\r\nX-Evil: 1", "ä", "a\x7f", "a" * 4097]
)
def test_a_value_that_cannot_be_a_header_is_refused(text: str) -> None:
    where = {"taskId": "t", "url": "https://hooks.example.com/"}
    token, credentials = {"token": text}, {"scheme": "Bearer", "credentials": text}
    nested = {"schemes": ["Bearer"], "credentials": text}
    for members in (token, {"authentication": credentials}):
        with pytest.raises(InvalidParams):
            v1.decode_push_config(msgspec.json.encode(where | members))
    for members in (token, {"authentication": nested}):
        config = {"taskId": "t", "pushNotificationConfig": where | members}
        with pytest.raises(InvalidParams):
            v03.decode_push_config(msgspec.json.encode(config))
