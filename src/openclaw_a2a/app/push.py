"""Joins push notifications: one outbox for each engine, which other kinds of deliveries share."""

import random
from contextlib import AsyncExitStack

from openclaw_a2a.inbound.push_configs import PushDesk
from openclaw_a2a.inbound.push_courier import Poster, PostRules, PushCourier
from openclaw_a2a.model.push import KIND
from openclaw_a2a.ports import Store
from openclaw_a2a.runtime.addresses import Resolve, Resolver
from openclaw_a2a.runtime.backoff import OutboxRules
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.outbox import LAST_TRIES_S, Outbox
from openclaw_a2a.runtime.rounds import Round
from openclaw_a2a.settings import PushSettings


class Push:
    """The outboxes of a gateway, and the desks at which callers ask for notifications."""

    def __init__(
        self,
        settings: PushSettings,
        *,
        version: str,
        resolve: Resolve | None = None,
        stop_s: float = LAST_TRIES_S,
    ) -> None:
        """`stop_s` is how long a stop of the gateway may take."""
        self._settings = settings
        self._last_tries_s = min(stop_s, LAST_TRIES_S)
        self._agent_name = f"openclaw-a2a/{version}"
        self._resolve = resolve or Resolver(settings.parallel)
        self._posters: dict[Engine, Poster] = {}
        self._rounds: dict[Engine, dict[str, Round]] = {}
        self.outboxes: dict[Engine, Outbox] = {}

    def outbox(self, engine: Engine) -> Outbox:
        """The outbox for the tasks of an engine."""
        if engine not in self.outboxes:
            self.outboxes[engine] = self._make_outbox(engine)
        return self.outboxes[engine]

    def add_round(self, engine: Engine, kind: str, own: Round) -> Outbox:
        """Have deliveries of another kind brought as well; to be said before the start."""
        outbox = self.outbox(engine)
        self._rounds[engine][kind] = own
        return outbox

    def desk(self, engine: Engine) -> PushDesk:
        """The desk for the tasks of an engine."""
        return PushDesk(
            store=engine.store,
            outbox=self.outbox(engine),
            now=engine.clock.now,
            per_task=self._settings.per_task,
            allow_private=self._settings.allow_private,
        )

    def own_poster(self, engine: Engine) -> Poster:
        """Posts to addresses that the operator has chosen, wherever they are."""
        settings = self._settings
        rules = PostRules(settings.timeout_seconds, allow_private=True, agent_name=self._agent_name)
        return Poster(rules, resolve=self._resolve, now=engine.clock.now)

    def start(self, engine: Engine, parts: AsyncExitStack) -> None:
        """Begin to deliver; `parts` stop it again."""
        if engine in self.outboxes:
            parts.push_async_callback(self._posters[engine].close)
            parts.push_async_callback(self.outboxes[engine].stop)
            self.outboxes[engine].start()

    def boxes(self) -> list[tuple[Store, Outbox]]:
        """The outboxes, each with the store whose deliveries it brings."""
        return [(engine.store, outbox) for engine, outbox in self.outboxes.items()]

    def _make_outbox(self, engine: Engine) -> Outbox:
        settings = self._settings
        post_rules = PostRules(
            timeout_s=settings.timeout_seconds,
            allow_private=settings.allow_private,
            agent_name=self._agent_name,
        )
        poster = Poster(post_rules, resolve=self._resolve, now=engine.clock.now)
        self._posters[engine] = poster
        rules = OutboxRules(
            attempts=settings.attempts,
            backoff_s=settings.backoff_seconds,
            most_backoff_s=settings.most_backoff_seconds,
            attempt_s=settings.timeout_seconds,
            parallel=settings.parallel,
        )
        own = Round(PushCourier(engine.store, poster), rules)
        self._rounds[engine] = {KIND: own}
        return Outbox(
            engine, self._rounds[engine], roll=random.random, last_tries_s=self._last_tries_s
        )
