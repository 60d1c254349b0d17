"""Wires push notifications: one outbox for each engine, which other kinds of deliveries share."""

import random
from contextlib import AsyncExitStack

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_tracking import DeliveryChannel, DeliveryPolicy
from openclaw_a2a.engine.outbox.outbox import STOP_GRACE_S, Outbox
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.delivery import PUSH_KIND
from openclaw_a2a.net.safe_resolver import HostResolver
from openclaw_a2a.server.push.configs import PushConfigService
from openclaw_a2a.server.push.sender import PushSender, WebhookOptions, WebhookSender
from openclaw_a2a.settings import PushSettings


class PushWiring:
    """The outboxes of a gateway, and the push configurations of each engine."""

    def __init__(
        self, settings: PushSettings, *, version: str, stop_s: float = STOP_GRACE_S
    ) -> None:
        """`stop_s` is how long a stop of the gateway may take."""
        self._settings = settings
        self._stop_grace_s = min(stop_s, STOP_GRACE_S)
        self._agent_name = f"openclaw-a2a/{version}"
        self._resolve = HostResolver(settings.parallel)
        self._senders: dict[Engine, WebhookSender] = {}
        self._channels: dict[Engine, dict[str, DeliveryChannel]] = {}
        self.outboxes: dict[Engine, Outbox] = {}

    def outbox(self, engine: Engine) -> Outbox:
        """The outbox for the tasks of an engine; created on first use."""
        if engine in self.outboxes:
            return self.outboxes[engine]
        settings = self._settings
        sender = self.make_sender(engine, allow_private=settings.allow_private)
        policy = DeliveryPolicy(
            max_attempts=settings.attempts,
            backoff=Backoff(settings.backoff_seconds, settings.most_backoff_seconds),
            attempt_timeout_s=settings.timeout_seconds,
            max_parallel=settings.parallel,
        )
        channel = DeliveryChannel(PushSender(engine.store.tasks, sender), policy)
        self._senders[engine] = sender
        self._channels[engine] = {PUSH_KIND: channel}
        outbox = Outbox(
            engine, self._channels[engine], roll=random.random, stop_grace_s=self._stop_grace_s
        )
        self.outboxes[engine] = outbox
        return outbox

    def add_channel(self, engine: Engine, kind: str, channel: DeliveryChannel) -> Outbox:
        """Add deliveries of another kind to an engine's outbox, before it is started."""
        outbox = self.outbox(engine)
        self._channels[engine][kind] = channel
        return outbox

    def config_service(self, engine: Engine) -> PushConfigService:
        """The push configurations of an engine's tasks."""
        return PushConfigService(
            store=engine.store,
            outbox=self.outbox(engine),
            now=engine.clock.now,
            per_task=self._settings.per_task,
            allow_private=self._settings.allow_private,
        )

    def make_sender(self, engine: Engine, *, allow_private: bool) -> WebhookSender:
        """A sender of webhooks; with `allow_private`, for those that the operator has named."""
        timeout_s, name = self._settings.timeout_seconds, self._agent_name
        options = WebhookOptions(timeout_s, allow_private=allow_private, agent_name=name)
        return WebhookSender(options, resolve=self._resolve, now=engine.clock.now)

    def start(self, engine: Engine, parts: AsyncExitStack) -> Outbox:
        """Start an engine's outbox; `parts` stops it again."""
        outbox = self.outbox(engine)
        # Closed in the reverse order: attempts under way still need the sender.
        parts.push_async_callback(self._senders[engine].close)
        parts.push_async_callback(outbox.stop)
        outbox.start()
        return outbox
