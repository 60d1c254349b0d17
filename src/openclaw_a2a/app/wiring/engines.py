"""Wires the stores: one engine for each, its limits and replicas, and what runs beside it."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from socket import gethostname

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine import Engine, EngineLimits, new_id
from openclaw_a2a.engine.maintenance import MaintenanceSchedule, start_maintenance
from openclaw_a2a.engine.outbox.delivery_tracking import DeliveryChannel
from openclaw_a2a.engine.recovery import fail_orphaned_tasks, recover_runs
from openclaw_a2a.engine.replication import Replication
from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
from openclaw_a2a.http.shared_rate_limit import SharedRateLimit
from openclaw_a2a.ports import Clock, Store
from openclaw_a2a.settings import RetentionSettings, Settings, StoreSettings
from openclaw_a2a.settings.tokens import decode_key, resolve_token
from openclaw_a2a.store import create_store
from openclaw_a2a.store.encryption import check_no_key_needed
from openclaw_a2a.store.rules import Lease

MakeChannel = Callable[[Engine], DeliveryChannel]


class EnginesWiring:
    """The engines of a gateway: one for each store that its settings name."""

    def __init__(
        self,
        settings: Settings,
        agents: AgentRegistry,
        *,
        clock: Clock,
        audit: AuditLog,
        push: PushWiring,
        rate_limit: SharedRateLimit,
        count_streams: Callable[[], int],
        store: Store | None = None,
        channels: Mapping[str, MakeChannel] | None = None,
    ) -> None:
        """`store`: to be used instead of those of the settings.

        `channels` make further delivery channels of each engine, by kind of delivery.
        """
        self.engines: dict[StoreSettings, Engine] = {}
        self._settings = settings
        self._agents = agents
        self._clock = clock
        self._audit = audit
        self._push = push
        self._rate_limit = rate_limit
        self._count_streams = count_streams
        self._store = store
        self._channels = channels or {}
        limits = settings.limits
        self._queues = SessionQueues(
            QueueLimits(
                limits.runs,
                limits.queue,
                limits.session_queue,
                peer_runs=limits.share(limits.per_peer_runs, limits.runs),
                peer_queue=limits.share(limits.per_peer_queue, limits.queue),
                agent_runs=limits.per_agent_runs or limits.runs,
            )
        )

    async def open(self, store_settings: StoreSettings, parts: AsyncExitStack) -> Engine:
        """The engine over a store; created, and the store opened, on first use."""
        if store_settings in self.engines:
            return self.engines[store_settings]
        store = await self._open_store(store_settings, parts)
        engine = self.engines[store_settings] = Engine(
            store,
            self._agents,
            queues=self._queues,
            clock=self._clock,
            limits=_engine_limits(self._settings),
            new_id=new_id,
            audit=self._audit,
        )
        if store.replicas is not None:
            if store_settings == self._settings.store:
                self._rate_limit.share(store.replicas.rates)
                parts.callback(self._rate_limit.share, None)
            engine.replication = Replication(
                engine, store.replicas, count_streams=self._count_streams
            )
        for kind, make_channel in self._channels.items():
            self._push.add_channel(engine, kind, make_channel(engine))
        return engine

    async def _open_store(self, settings: StoreSettings, parts: AsyncExitStack) -> Store:
        keys = [decode_key(resolve_token(one)) for one in self._settings.security.encryption.keys]
        store = self._store
        if store is None:
            store = create_store(
                settings.kind.value,
                path=None if settings.path is None else str(settings.path),
                url=resolve_token(settings.url or ""),
                password=resolve_token(settings.password or ""),
                schema=settings.schema,
                connections=settings.connections,
                lease=self._lease(settings),
                logs_directory=self._settings.opt.directory,
                keys=keys,
                on_upgrade=self._audit.record_upgrade,
            )
        await store.open()
        # Only after `open` succeeded: a store that another process has locked is not ours to close.
        parts.push_async_callback(store.close)
        if not keys:
            await check_no_key_needed(store)
        return store

    def _lease(self, store: StoreSettings) -> Lease | None:
        """What makes this gateway one of several on its store, if it is."""
        if not store.replicas:
            return None
        name = store.replica_name or f"{gethostname()}:{self._settings.server.port}"
        return Lease(self._settings.lease.seconds, name)

    async def start(self, engine: Engine, parts: AsyncExitStack) -> None:
        """Continue what a crash or another replica left behind, then start the loops."""
        # Registered first: if recovery fails, the runs it has started already are stopped.
        parts.push_async_callback(engine.stop)
        replication = engine.replication
        if replication is not None:
            elsewhere = self._agents.ids_elsewhere
            here = [one for one in self._agents.ids if one not in elsewhere]
            known = self._settings.agents
            waiting = [one for one in elsewhere if known[one].when_no_replica == "queue"]
            await replication.start(here, elsewhere, waiting)
        # Before the loops and the outbox: no run of this engine is active yet, so every unfinished
        # one was left by an engine that is gone, or is that of another replica.
        await recover_runs(engine, is_starting=True)
        await fail_orphaned_tasks(engine)
        schedule = _maintenance_schedule(self._settings.retention)
        start_maintenance(engine, schedule)
        outbox = self._push.start(engine, parts)
        engine.on_recovered.append(outbox.scan)
        if replication is not None:
            replication.on_taken_over.append(outbox.scan)
            replication.on_dropped.append(outbox.drop)


def _engine_limits(settings: Settings) -> EngineLimits:
    limits, retention = settings.limits, settings.retention
    return EngineLimits(
        run_s=limits.run_seconds,
        cancel_s=limits.cancel_seconds,
        lease_s=settings.lease.seconds,
        join_deltas=limits.join_deltas,
        inflight_events=limits.inflight_events,
        history_messages=limits.history_messages,
        queued_replies=limits.queued_replies,
        reference_tasks=limits.reference_tasks,
        peer_held=limits.per_peer_held,
        held_s=retention.held_seconds,
        reference_bytes=limits.reference_bytes,
        event_bytes=limits.event_bytes,
        run_bytes=limits.artifact_bytes,
        deduplicates=retention.message_seconds > 0,
    )


def _maintenance_schedule(retention: RetentionSettings) -> MaintenanceSchedule:
    return MaintenanceSchedule(
        sweep_s=retention.sweep_seconds,
        ended_s=retention.ended_seconds,
        keep_ended=retention.keep_ended,
        # Without deduplication only messages of the gateway itself have records.
        message_s=retention.message_seconds or RetentionSettings().message_seconds,
    )
