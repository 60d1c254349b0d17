"""The two generations of the JSON-RPC wire: how each reads requests and spells answers."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from openclaw_a2a.inbound.push_configs import PushPage
from openclaw_a2a.model.push import PushConfig
from openclaw_a2a.runtime.live import Answer
from openclaw_a2a.wire import v03, v1
from openclaw_a2a.wire.requests import (
    GetRequest,
    PushListRequest,
    PushRequest,
    PushWish,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.wire.versions import Wire

KEPT_BYTES = 8 * 1024 * 1024
"""How much of what was transcoded is kept for the next reader."""

_ENTRY_BYTES = 256
"""What keeping a result costs besides its bytes."""

MakeId = Callable[[], str]

_ALL = 2**31 - 1
"""0.3 has no pages of push configurations."""


class Dialect(Protocol):
    """How one protocol generation is spoken. Answers come in their stored (1.0) spelling."""

    wire: Wire
    subscribes_to_ended: bool
    streams_early_errors: bool
    push_path: str
    """Where the address of a new push configuration stands."""

    def decode_send(self, params: bytes, *, make_message_id: MakeId | None = None) -> SendRequest:
        """The parameters of a send. A missing message id is made, or refused without a maker."""
        ...

    def decode_get(self, params: bytes) -> GetRequest:
        """The parameters of a get."""
        ...

    def decode_task(self, params: bytes) -> TaskRequest:
        """The parameters of a cancel or subscribe."""
        ...

    def decode_push_wish(self, params: bytes) -> PushWish:
        """The parameters of a new push configuration."""
        ...

    def decode_push(self, params: bytes) -> PushRequest:
        """The parameters that name a push configuration."""
        ...

    def decode_push_list(self, params: bytes) -> PushListRequest:
        """The parameters of a list of push configurations."""
        ...

    def push(self, config: PushConfig) -> bytes:
        """A push configuration."""
        ...

    def push_list(self, page: PushPage) -> bytes:
        """Some push configurations."""
        ...

    def task(self, body: bytes, history_length: int | None) -> bytes:
        """A task as a result by itself."""
        ...

    def sent(self, result: bytes | Answer, history_length: int | None) -> bytes:
        """What a send results in."""
        ...

    def stream_body(self, body: bytes) -> bytes:
        """A stored stream body as one event."""
        ...


class DialectV1:
    """A2A 1.0: the stored spelling is the wire's."""

    wire = Wire.V1
    subscribes_to_ended = False
    streams_early_errors = False
    push_path = "url"

    def decode_send(self, params: bytes, *, make_message_id: MakeId | None = None) -> SendRequest:
        """The parameters of SendMessage."""
        return v1.decode_send(params, make_message_id=make_message_id)

    def decode_get(self, params: bytes) -> GetRequest:
        """The parameters of GetTask."""
        return v1.decode_get(params)

    def decode_task(self, params: bytes) -> TaskRequest:
        """The parameters of CancelTask and SubscribeToTask."""
        return v1.decode_task_request(params)

    def decode_push_wish(self, params: bytes) -> PushWish:
        """The parameters of CreateTaskPushNotificationConfig."""
        return v1.decode_push_config(params)

    def decode_push(self, params: bytes) -> PushRequest:
        """The parameters of GetTaskPushNotificationConfig and its deletion."""
        return v1.decode_push_request(params)

    def decode_push_list(self, params: bytes) -> PushListRequest:
        """The parameters of ListTaskPushNotificationConfigs."""
        return v1.decode_push_list(params)

    def push(self, config: PushConfig) -> bytes:
        """The configuration, flat."""
        return v1.encode_push_config(config)

    def push_list(self, page: PushPage) -> bytes:
        """The configurations, and where to go on."""
        return v1.encode_push_list(page.configs, page.next_page_token)

    def task(self, body: bytes, history_length: int | None) -> bytes:
        """A bare task; as stored unless its history is to be cut."""
        if history_length is None:
            return body
        return v1.trim_task(body, history_length=history_length, with_artifacts=None)

    def sent(self, result: bytes | Answer, history_length: int | None) -> bytes:
        """The task or the message, under the member that names it."""
        if isinstance(result, Answer):
            return v1.wrap_message(result.message)
        return v1.wrap_task(self.task(result, history_length))

    def stream_body(self, body: bytes) -> bytes:
        """The body as it is stored."""
        return body


class DialectV03:
    """A2A 0.3: everything is transcoded, each event once however many follow it."""

    wire = Wire.V03
    subscribes_to_ended = True
    streams_early_errors = True
    push_path = "pushNotificationConfig.url"

    def __init__(self) -> None:
        self._transcode = remember(v03.transcode, most_bytes=KEPT_BYTES)

    def decode_send(self, params: bytes, *, make_message_id: MakeId | None = None) -> SendRequest:
        """The parameters of message/send and message/stream."""
        return v03.decode_send(params, make_message_id=make_message_id)

    def decode_get(self, params: bytes) -> GetRequest:
        """The parameters of tasks/get."""
        return v03.decode_get(params)

    def decode_task(self, params: bytes) -> TaskRequest:
        """The parameters of tasks/cancel and tasks/resubscribe."""
        return v03.decode_task_request(params)

    def decode_push_wish(self, params: bytes) -> PushWish:
        """The parameters of tasks/pushNotificationConfig/set."""
        return v03.decode_push_config(params)

    def decode_push(self, params: bytes) -> PushRequest:
        """The parameters of tasks/pushNotificationConfig/get and /delete."""
        return v03.decode_push_request(params)

    def decode_push_list(self, params: bytes) -> PushListRequest:
        """The parameters of tasks/pushNotificationConfig/list: all there are."""
        request = v03.decode_push_list(params)
        return PushListRequest(task_id=request.task_id, page_size=_ALL)

    def push(self, config: PushConfig) -> bytes:
        """The configuration, beside the id of its task."""
        return v03.encode_push_config(config)

    def push_list(self, page: PushPage) -> bytes:
        """The configurations and nothing else."""
        return v03.encode_push_list(page.configs)

    def task(self, body: bytes, history_length: int | None) -> bytes:
        """A task of kind `task`."""
        return v03.trim_task(body, history_length)

    def sent(self, result: bytes | Answer, history_length: int | None) -> bytes:
        """The task or the message; its kind tells which."""
        if isinstance(result, Answer):
            return v03.transcode(v1.wrap_message(result.message))
        return self.task(result, history_length)

    def stream_body(self, body: bytes) -> bytes:
        """The body as an event of 0.3."""
        return self._transcode(body)


def remember(function: Callable[[bytes], bytes], *, most_bytes: int) -> Callable[[bytes], bytes]:
    """The function with its latest results kept, by the identity of their (immutable) input.

    Followers of one task share the bytes of an event, so identity is all that has to be compared.
    Inputs and results together stay within the bound; what would take much of it is not kept.
    """
    known: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
    size = 0

    def recall(body: bytes) -> bytes:
        nonlocal size
        hit = known.get(id(body))
        if hit is not None and hit[0] is body:
            return hit[1]
        result = function(body)
        cost = len(body) + len(result) + _ENTRY_BYTES
        if cost * 16 <= most_bytes:
            known[id(body)] = (body, result)
            size += cost
            while size > most_bytes:
                _, (old, old_result) = known.popitem(last=False)
                size -= len(old) + len(old_result) + _ENTRY_BYTES
        return result

    return recall
