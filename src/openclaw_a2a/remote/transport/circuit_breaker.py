"""One circuit breaker per peer: after several failures in a row it gets no requests for a while.

A circuit is CLOSED while requests pass, OPEN until `opens_until`, and then HALF_OPEN while a trial
request is running: the first response closes the circuit, a failure opens it for longer. A trial
may last as long as a stream, so another one may begin some seconds later.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.remote.result import CIRCUIT_OPEN, RemoteFailure
from openclaw_a2a.remote.target_secrets import redact
from openclaw_a2a.remote.transport.peer_errors import is_network_failure, is_unsent

FAILURES_TO_OPEN = 5
_BACKOFF = Backoff(first_s=5.0, max_s=120.0, jitter=0.0)
_NEXT_TRIAL = timedelta(seconds=5)


class CircuitState(Enum):
    """The states of a circuit, as pages show them."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Circuit(msgspec.Struct, frozen=True):
    """The circuit of a peer; failures that did not open it yet are counted, too."""

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    opens_until: datetime | None = None
    reason: str = ""


_CLOSED = Circuit()


class CircuitBreaker:
    """The circuits of all peers, by address. A peer without an entry is CLOSED."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._circuits: dict[str, Circuit] = {}

    def circuit(self, url: str) -> Circuit:
        """The circuit of a peer."""
        return self._circuits.get(url, _CLOSED)

    @asynccontextmanager
    async def guard(
        self, url: str, secrets: Callable[[], tuple[str, ...]] = tuple
    ) -> AsyncGenerator[None]:
        """Wraps a request to the peer: network failures count as failures, any response as success.

        What `secrets` returns is kept out of the recorded reason.

        Raises: RemoteFailure (the circuit is open).
        """
        circuit, trial = self._circuits.get(url), None
        if circuit is not None and circuit.opens_until is not None:
            now = self._now()
            if now < circuit.opens_until:
                until = circuit.opens_until.isoformat(timespec="seconds").replace("+00:00", "Z")
                raise RemoteFailure.peer(
                    CIRCUIT_OPEN,
                    f"{url} failed {circuit.failures} times in a row and is not asked before "
                    f"{until}; the last time: {circuit.reason}",
                    "wait until retry_at, or check the peer",
                    retry_at=until,
                )
            # Before any await: of all concurrent requests only this one is the trial.
            trial = msgspec.structs.replace(
                circuit, state=CircuitState.HALF_OPEN, opens_until=now + _NEXT_TRIAL
            )
            self._circuits[url] = trial
        try:
            yield
        except RemoteFailure as failure:
            if is_unsent(failure):
                self._end_trial(url, trial)
            elif is_network_failure(failure):
                self._record_failure(url, redact(failure.message, secrets()))
            else:
                self.record_answer(url)
            raise
        except BaseException:
            self._end_trial(url, trial)
            raise
        self.record_answer(url)

    def record_answer(self, url: str) -> None:
        """The peer has answered a request, which may still be running: its circuit closes."""
        self._circuits.pop(url, None)

    def _end_trial(self, url: str, trial: Circuit | None) -> None:
        """A request ended without an answer, but not because of the peer: the next may try."""
        if trial is not None and self._circuits.get(url) is trial:
            self._circuits[url] = msgspec.structs.replace(
                trial, state=CircuitState.OPEN, opens_until=self._now()
            )

    def _record_failure(self, url: str, reason: str) -> None:
        # HALF_OPEN counts on from the failures before: each failed trial doubles the pause.
        circuit = self.circuit(url)
        if circuit.state is CircuitState.OPEN:
            return  # a request from before the circuit opened: it must not open for longer
        failures = circuit.failures + 1
        if failures < FAILURES_TO_OPEN:
            self._circuits[url] = Circuit(failures=failures, reason=reason)
            return
        pause_s = _BACKOFF.delay_s(failures - FAILURES_TO_OPEN + 1)
        until = self._now() + timedelta(seconds=pause_s)
        self._circuits[url] = Circuit(CircuitState.OPEN, failures, until, reason)
