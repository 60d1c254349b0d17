"""The A2A channel as the host of an agent sees it: replies after a run, which join their tasks."""

from collections.abc import Iterable, Mapping
from typing import Literal, NoReturn, cast

from openclaw_a2a.engine.background_replies import REPLY_PREFIX, append_reply, reply_artifact
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.engine_state import INTERRUPTING
from openclaw_a2a.engine.transcript.assistant_message import json_safe, replace_lone_surrogates
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import Conflict, GatewayError, UnsupportedOperation
from openclaw_a2a.model.ids import AccountId, ArtifactId, Json, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct, Part

log = get_logger(__name__)

TASK_REQUIRED = "A2A_QUEUED_REPLY_TASK_REQUIRED"
ACCOUNT_NOT_RUNNING = "A2A_QUEUED_REPLY_ACCOUNT_NOT_RUNNING"
TASK_NOT_FOUND = "A2A_QUEUED_REPLY_TASK_NOT_FOUND"

_ADDRESS = "a2a:"
_MAX_ATTEMPTS = 3


class QueuedReply(JsonStruct, frozen=True):
    """A reply as the host delivers it; `thread_id` is the id of its task."""

    to: Json
    thread_id: Json
    payload: Json
    account_id: Json = None
    session_key: Json = None


class QueuedResult(JsonStruct, frozen=True, omit_defaults=True):
    """The result: `message_id` is the artifact, `error` is why there is none."""

    ok: bool
    message_id: str | None = None
    error: str | None = None


CHANNEL: JsonObject = {
    "id": "a2a",
    "pluginId": "openclaw-a2a-inbound",
    "label": "A2A Inbound",
    "docsPath": "/channels/a2a",
    "capabilities": {"chatTypes": ("direct",), "reply": False, "blockStreaming": True},
    "queuedReply": {"mode": "protocol"},
}
"""The inbound channel as a host describes it."""


class OutboundRefusal:
    """Outbound delivery of the channel: not supported.

    Remote agents are called with the tool `remote_agent`, which has its own target policy.
    """

    delivery_mode: Literal["direct"] = "direct"

    async def send_text(self, to: str, *_content: Json, **_more: Json) -> NoReturn:
        """Not supported. Raises: UnsupportedOperation."""
        raise UnsupportedOperation(
            f"A2A_OUTBOUND_DELIVERY_UNSUPPORTED: nothing can be sent to {to[:80]} through the "
            "channel a2a; call remote agents with the tool remote_agent instead"
        )

    send_media = send_payload = send_text


async def deliver_queued_reply(engines: Iterable[Engine], reply: QueuedReply) -> QueuedResult:
    """Append one artifact to the task that the reply names, whatever the task's state."""
    task_id = reply.thread_id
    if not isinstance(task_id, str) or not task_id.strip():
        return _rejected(TASK_REQUIRED, "a queued reply must name its task as threadId")
    running = {name: engine for engine in engines for name in engine.accounts}
    account = _account(reply, running)
    if account is None or (engine := running.get(account)) is None or engine.state in INTERRUPTING:
        named = account or "of this reply"
        return _rejected(ACCOUNT_NOT_RUNNING, f"the account {named[:80]} is not running here")
    try:
        return await _append(engine, account, TaskId(task_id), reply)
    except GatewayError as error:
        log.warning("background.reply_not_appended", task_id=task_id, reason=error.message)
        return QueuedResult(ok=False, error=error.message)


async def _append(
    engine: Engine, account: AccountId, task_id: TaskId, reply: QueuedReply
) -> QueuedResult:
    stored = await engine.store.tasks.read_task(None, task_id)
    if stored is None or stored.head.scope.account != account:
        return _rejected(TASK_NOT_FOUND, f"task not found: there is no task {task_id[:80]}")
    parts = payload_parts(reply.payload)
    if not parts:
        return QueuedResult(ok=True)
    artifact = reply_artifact(
        ArtifactId(f"{REPLY_PREFIX}{engine.new_id()}"),
        parts,
        session_key=_text(reply.session_key),
        to=_text(reply.to),
    )
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            if await append_reply(engine, task_id, artifact):
                return QueuedResult(ok=True, message_id=artifact.artifact_id)
            break
        except Conflict:  # the task changed between the read and the commit
            if attempt == _MAX_ATTEMPTS:
                raise
    return _rejected(TASK_NOT_FOUND, f"task not found: there is no task {task_id[:80]} any more")


def _account(reply: QueuedReply, running: Mapping[AccountId, Engine]) -> AccountId | None:
    """The account that is named, else the one in `to`, else the only one."""
    named = _text(reply.account_id)
    if named is not None:
        return AccountId(named)
    to = _text(reply.to) or ""
    if to.startswith(_ADDRESS) and to.removeprefix(_ADDRESS).strip():
        return AccountId(to.removeprefix(_ADDRESS).strip())
    return next(iter(running)) if len(running) == 1 else None


def payload_parts(payload: Json) -> tuple[Part, ...]:
    """A reply payload as parts: its text, and its other members as one data part."""
    members = cast(JsonObject, payload) if isinstance(payload, Mapping) else {}
    text = _text(members.get("text")) or _text(members.get("body"))
    rest: JsonObject = {}
    if isinstance(members.get("mediaUrls"), list) and members["mediaUrls"]:
        rest["mediaUrls"] = members["mediaUrls"]
    if members.get("channelData") is not None:
        rest["channelData"] = members["channelData"]
    rest |= {name: True for name in ("isError", "audioAsVoice") if members.get(name) is True}
    if (answered := _text(members.get("replyToId"))) is not None:
        rest["replyToId"] = answered
    texts = () if text is None else (Part.of_text(replace_lone_surrogates(text)),)
    return texts + ((Part.of_data(json_safe(rest)),) if rest else ())


def _text(value: Json) -> str | None:
    """The value when it is text that is not blank."""
    return replace_lone_surrogates(value) if isinstance(value, str) and value.strip() else None


def _rejected(code: str, reason: str) -> QueuedResult:
    return QueuedResult(ok=False, error=f"{code}: {reason}")
