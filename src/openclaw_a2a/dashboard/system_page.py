"""Read models of deliveries in trouble, and of the gateway itself: version, store, settings."""

import platform
import sqlite3
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from openclaw_a2a.dashboard.actions import ActionRequest, ActionResult
from openclaw_a2a.dashboard.endpoint import PageRequest
from openclaw_a2a.dashboard.task_page import ShownDelivery, show_delivery
from openclaw_a2a.engine.audit_log import AuditLog, audit_outcome
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import DeliveryNotFound, GatewayError
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.settings import Settings, effective_settings

_LISTED = 500
_IN_TROUBLE = (DeliveryState.WAITING, DeliveryState.SKIPPED, DeliveryState.DEAD)

FindOutboxes = Callable[[], Sequence[tuple[Engine, Outbox]]]
FindReceiver = Callable[[Delivery], str]


class DeliveriesPage(JsonStruct, frozen=True, omit_defaults=False):
    """Deliveries that wait for another attempt, of which something was skipped, or given up."""

    deliveries: tuple[ShownDelivery, ...]
    counts: dict[str, int]


class Deliveries:
    """Reads deliveries, and has them tried again. `receiver` names the receiver of one."""

    def __init__(self, outboxes: FindOutboxes, receiver: FindReceiver, audit: AuditLog) -> None:
        self._outboxes = outboxes
        self._receiver = receiver
        self._audit = audit

    async def list(self, _: PageRequest) -> JsonStruct:
        """The page."""
        found = [
            one
            for engine, _ in self._outboxes()
            for state in _IN_TROUBLE
            for one in await engine.store.deliveries.list_deliveries(
                state, after=DeliveryId(""), limit=_LISTED
            )
        ]
        found.sort(key=lambda one: one.updated_at, reverse=True)
        counts = {
            state.name.lower(): sum(one.state is state for one in found) for state in _IN_TROUBLE
        }
        shown = [
            msgspec.structs.replace(show_delivery(one), to=self._receiver(one)) for one in found
        ]
        return DeliveriesPage(tuple(shown), counts)

    async def redeliver(self, request: ActionRequest) -> ActionResult:
        """Try one again now. Raises: DeliveryNotFound."""
        wanted = DeliveryId(request.segments[0])
        error: BaseException | None = None
        try:
            for engine, outbox in self._outboxes():
                if await engine.store.deliveries.read_delivery(None, wanted) is not None:
                    tried = await outbox.redeliver(wanted)
                    is_tried = tried.state is DeliveryState.WAITING
                    done = "It is tried again now." if is_tried else "Nothing of it had failed."
                    return ActionResult(done, "/dashboard/deliveries", wanted)
            raise DeliveryNotFound(f"there is no delivery {wanted[:80]} any more")
        except BaseException as raised:  # whatever it is: something may have been changed
            error = raised
            raise
        finally:
            self._audit.record(
                "operator-action",
                request.who,
                action="dashboard/redeliver",
                target=wanted,
                address=request.address,
                **audit_outcome(error),
            )


class StoreView(JsonStruct, frozen=True, omit_defaults=False):
    """A store: where it is, how large, and why it takes no writes; empty: it does."""

    kind: str
    path: str
    size: int
    problem: str


class SystemPage(JsonStruct, frozen=True, omit_defaults=False):
    """The gateway itself. `settings` are the effective ones, with secrets hidden."""

    version: str
    python: str
    sqlite: str
    platform: str
    started_at: datetime
    stores: tuple[StoreView, ...]
    settings: tuple[tuple[str, str], ...]


class SystemReader:
    """Makes the page of the gateway itself."""

    def __init__(
        self, settings: Settings, engines: Callable[[], Sequence[Engine]], *, version: str
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._version = version
        self._started_at = datetime.now(UTC)

    async def read(self, _: PageRequest) -> JsonStruct:
        """The page."""
        store, problem = self._settings.store, ""
        for engine in self._engines():
            try:
                await engine.store.check()
            except GatewayError as error:
                problem = error.message
        size = 0
        if store.path is not None:
            # What was written last is in the write-ahead log beside the file.
            files = (store.path, store.path.with_name(f"{store.path.name}-wal"))
            size = sum(one.stat().st_size for one in files if one.is_file())
        return SystemPage(
            version=self._version,
            python=platform.python_version(),
            sqlite=sqlite3.sqlite_version,
            platform=f"{platform.platform(terse=True)}, {sys.executable}",
            started_at=self._started_at,
            stores=(StoreView(store.kind.value, str(store.path or ""), size, problem),),
            settings=tuple(_leaves("", effective_settings(self._settings))),
        )


def _leaves(path: str, value: Json) -> list[tuple[str, str]]:
    if is_object(value) and value:
        return [
            leaf
            for name, member in value.items()
            for leaf in _leaves(f"{path}.{name}" if path else name, member)
        ]
    return [(path, str(value))]
