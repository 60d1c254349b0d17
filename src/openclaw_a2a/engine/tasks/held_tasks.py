"""Tasks that wait for the operator: list them as approvals, release them, or reject them.

A message that the policy holds is stored in its task, which is `auth-required` until the operator
decides (`HeldTasks.decide`) or too much time has passed (`reject_expired`).
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.engine.audit_log import acting
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.sessions import SessionHold
from openclaw_a2a.engine.tasks.active_task import Rejected
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.submit import SubmitRequest, continue_task, hash_message, list_held
from openclaw_a2a.engine.tasks.submit_policy import PairedPeers
from openclaw_a2a.engine.tasks.turn_builder import usable_text
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import (
    ApprovalNotFound,
    Conflict,
    CorruptRecord,
    Overloaded,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import JsonObject, OwnerId, PeerName, TaskId
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.records import (
    HeldMessage,
    StoredTask,
    TaskHead,
    decode_task,
    encode_json,
    read_held_message,
)
from openclaw_a2a.model.task import TaskState

log = get_logger(__name__)

_MAX_LISTED = 1000
_SHOWN_TEXT = 2000
_SHOWN_ITEMS = 20  # parts, and keys of metadata
_SHOWN_NAME = 80

DENIED_TEXT = "The operator of this gateway did not allow this task."
EXPIRED_TEXT = "Nobody decided about this task in time; send it again."


class HeldTasks:
    """The tasks of one engine that wait for the operator, listed and decided as approvals."""

    def __init__(self, engine: Engine, paired: PairedPeers | None) -> None:
        self._engine = engine
        self._paired = paired

    async def approvals(self) -> tuple[Approval, ...]:
        """The held tasks, the oldest first, as far as they can be shown."""
        waiting = await list_held(self._engine)
        # Where there are too many, the oldest of each caller: none hides those of the others.
        ranks: Counter[PeerName] = Counter()
        ranked: list[tuple[int, int]] = []
        for index, (head, _) in enumerate(waiting):
            ranked.append((ranks[head.scope.principal], index))
            ranks[head.scope.principal] += 1
        shown = sorted(index for _, index in sorted(ranked)[:_MAX_LISTED])
        return tuple([await self._describe(*waiting[index]) for index in shown])

    async def _describe(self, head: TaskHead, held: HeldMessage) -> Approval:
        try:
            stored = await self._engine.store.tasks.read_task(None, head.id)
            message = None if stored is None else _find_message(stored, held)
        except CorruptRecord:  # reported by the store; the others are shown all the same
            message = None
        text = "" if message is None else usable_text(message)
        agent = "" if head.binding is None else head.binding.agent_id
        cut = " [...]" if len(text) > _SHOWN_TEXT else ""
        # Not in the command, where the peer could write the same.
        warning, rest = held.hold.reason, "" if message is None else _describe_rest(message)
        if rest:
            see = f"see all of it with: openclaw-a2a tasks show {head.id} --all --json"
            warning = f"{warning}; not shown here: {rest}; {see}"
        return Approval(
            id=head.id,
            command=f"{head.scope.principal} to {agent}: {text[:_SHOWN_TEXT]}{cut}",
            asked_at=head.status_at,
            expires_at=head.status_at + timedelta(seconds=self._engine.limits.held_s),
            task_id=head.id,
            warning=warning,
        )

    async def decide(self, approval_id: str, *, allow: bool, text: str = DENIED_TEXT) -> None:
        """Release a held task, or reject it with this text.

        Raises: ApprovalNotFound, Overloaded.
        """
        engine, task_id = self._engine, TaskId(approval_id)
        # A run may be storing the held message right now; wait for it.
        while storing := _runs_storing_hold(engine, task_id):
            await asyncio.wait(storing)
        other_owner: OwnerId | None = None
        async with engine.task_lock(task_id):
            stored = await engine.store.tasks.read_task(None, task_id)
            held = read_held_message(await engine.store.tasks.read_resume_token(task_id))
            if stored is None or held is None or stored.head.state is not TaskState.AUTH_REQUIRED:
                raise ApprovalNotFound(f"no task {approval_id[:80]} waits for a decision")
            try:
                if allow:
                    other_owner = await self._release(stored, held)
                else:
                    text = f"{text} Reason: {held.hold.reason}."
                    await engine.end_stored_task(stored, TaskState.REJECTED, text)
            except Conflict:  # another replica decided, or the caller canceled the task there
                raise ApprovalNotFound(
                    f"task {task_id} was decided or canceled meanwhile; look at the task"
                ) from None
        # Not under the task lock: the session may belong to this replica again by then. The other
        # one would send the release back, and it would wait for this lock.
        if other_owner is not None and engine.replication is not None:
            await engine.replication.requests.release_elsewhere(other_owner, task_id)

    async def _release(self, stored: StoredTask, held: HeldMessage) -> OwnerId | None:
        """Release a held task here, or return the replica that has to do it.

        Raises: as `decide`, Conflict.
        """
        engine, task_id = self._engine, stored.head.id
        scope, binding = stored.head.scope, stored.head.binding
        # Approve the peer before releasing the task: after a crash in between, the task is still
        # held and can be allowed again.
        if held.hold.pairs and self._paired is not None:
            await self._paired.add(scope.principal)
            who, address = acting.get()
            engine.audit.record(
                "peer-paired", who, target=scope.principal, task=task_id, address=address
            )
        message = _find_message(stored, held)
        if message is None or binding is None:
            raise ApprovalNotFound(f"the message of task {task_id[:80]} is not stored")
        rules = engine.rules_of(scope.account, binding.agent_id)
        session_hold, replication = None, engine.replication
        if replication is not None:
            session_hold = await replication.choose_replica(binding.agent_id, binding.session_key)
            session_hold = session_hold or await replication.hold(binding.session_key)
            if not isinstance(session_hold, SessionHold):
                return session_hold
            # Recovered runs must be queued before this message.
            if engine.recoveries.may_include(binding.session_key):
                session_hold.release()
                raise Overloaded("the session is being recovered; decide again shortly")
        run = continue_task(
            engine,
            SubmitRequest(
                scope,
                message,
                accepted_output_modes=held.accepted_output_modes,
                is_released=True,
            ),
            rules,
            stored,
            resume=held.agent_token(),
            body_hash=hash_message(message),
            hold=session_hold,
        )
        # Wait for the commit, so that the task is released in the store when the operator gets the
        # answer, and when a second decision reads it.
        first = await run.created.wait()
        if isinstance(first, Rejected):
            raise first.error or StoreUnavailable("the task could not be let go; decide again")
        return None


def _runs_storing_hold(engine: Engine, task_id: TaskId) -> "list[asyncio.Task[None]]":
    """The runs that are storing a held message of a task; not one that works on it."""
    runs = [run for run in engine.runs.values() if run.record.task_id == task_id]
    tasks = [run.task for run in runs if run.record.options.hold is not None]
    return [task for task in tasks if task is not None and not task.done()]


async def reject_expired(engine: Engine, *, now: datetime) -> None:
    """Reject the tasks that have waited for the operator for too long. Raises: StoreUnavailable."""
    before = now - timedelta(seconds=engine.limits.held_s)
    for head, _ in await list_held(engine):
        if head.status_at >= before:
            return  # the oldest come first
        try:
            await HeldTasks(engine, None).decide(head.id, allow=False, text=EXPIRED_TEXT)
        except ApprovalNotFound:  # decided, or canceled, meanwhile
            continue
        except CorruptRecord as error:  # the others expire all the same
            log.warning("policy.held_task_unreadable", task_id=head.id, reason=error.message)
            continue
        engine.audit.record(
            "approval-expired", head.scope.principal, task=head.id, account=head.scope.account
        )


def _find_message(stored: StoredTask, held: HeldMessage) -> Message | None:
    history = decode_task(encode_json(TaskProjection.from_stored(stored).task())).history
    return next((one for one in history if one.message_id == held.message_id), None)


def _describe_rest(message: Message) -> str:
    """What a description of a message by the beginning of its text does not show."""
    items: list[str] = []
    if (hidden := len(usable_text(message)) - _SHOWN_TEXT) > 0:
        items.append(f"{hidden} more characters")
    for number, part in enumerate(message.parts[:_SHOWN_ITEMS], 1):
        items += _describe_part(number, part)
    if len(message.parts) > _SHOWN_ITEMS:
        items.append(f"{len(message.parts) - _SHOWN_ITEMS} more parts")
    if message.metadata:
        items.append(f"metadata: {_listed_keys(message.metadata)}")
    return "; ".join(items)


def _describe_part(number: int, part: Part) -> Iterator[str]:
    # What the peer chose is quoted: it cannot look like the rest of the description.
    if part.is_file:
        names = (part.media_type, part.filename, part.url)
        quoted = ", ".join(ascii(one[:_SHOWN_NAME]) for one in names if one)
        size = "a link" if part.raw is None else f"{len(part.content)} bytes"
        yield f"part {number}: file, {size}, {quoted}"
    elif part.data is not msgspec.UNSET:
        yield f"part {number}: data, {len(encode_json(part.data))} bytes"
    if part.metadata:
        yield f"metadata of part {number}: {_listed_keys(part.metadata)}"


def _listed_keys(metadata: JsonObject) -> str:
    keys = [ascii(key[:_SHOWN_NAME]) for key in metadata]
    more = len(keys) - _SHOWN_ITEMS
    return ", ".join(keys[:_SHOWN_ITEMS]) + (f" and {more} more" if more > 0 else "")
