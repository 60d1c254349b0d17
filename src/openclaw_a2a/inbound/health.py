"""Is the gateway alive, and can it do its work?"""

from collections.abc import Callable, Iterable

import msgspec

from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.presence import Presence, shown
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.runtime.engine import Engine


class Health:
    """The two health pages."""

    def __init__(
        self, engines: Iterable[Engine], presences: Callable[[], list[Presence]], *, version: str
    ) -> None:
        self._engines = list(engines)
        self._presences = presences
        self._version = version

    async def alive(self, exchange: Exchange) -> None:
        """The process answers."""
        await exchange.answer(200, msgspec.json.encode({"status": "ok", "version": self._version}))

    async def ready(self, exchange: Exchange) -> None:
        """Messages can be taken in: the store writes, and the gateway is not stopping.

        Agents that cannot answer are named and do not count: the others can, and so can they again.
        """
        reasons = [reason for engine in self._engines for reason in await _reasons(engine)]
        status = 503 if reasons else 200
        agents = [shown(one) for one in self._presences()]
        body = {"ready": not reasons, "reasons": reasons, "agents": agents}
        await exchange.answer(status, msgspec.json.encode(body))


async def _reasons(engine: Engine) -> list[str]:
    reasons = ["the gateway is stopping"] if engine.is_draining else []
    try:
        await engine.store.check()
    except GatewayError as error:
        reasons.append(error.message)
    return reasons
