"""`/metrics`: figures of this gateway as text for Prometheus, for the operator."""

from collections.abc import Collection
from typing import NamedTuple

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.ports import ReplicaStore
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest, RawResponse

METRICS_PATH = "/metrics"
_MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class _Metric(NamedTuple):
    name: str
    kind: str
    help: str
    value: float | None
    """None: not known now, and left out."""


class MetricsAdmin:
    """Runs and streams, and what happened between the gateways that share a store."""

    def __init__(self, engines: Collection[Engine], streams: SseStreams) -> None:
        self._engines = engines
        self._streams = streams

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the route."""
        endpoint.add_route("GET", METRICS_PATH, self.read)

    async def read(self, _: AdminRequest) -> RawResponse:
        """All figures."""
        runs = [run for engine in self._engines for run in engine.runs.values()]
        active = sum(run.slot.has_turn for run in runs)
        found = [
            _Metric("runs", "gauge", "Runs in progress.", active),
            _Metric("queued_runs", "gauge", "Runs that wait for their turn.", len(runs) - active),
            _Metric("streams", "gauge", "Open streams.", len(self._streams)),
        ]
        for engine in self._engines:
            if engine.store.replicas is not None:
                found += _read_replica(engine.store.replicas)
                break
        lines: list[str] = []
        for metric in found:
            name = f"openclaw_a2a_{metric.name}"
            if metric.value is None:
                continue
            lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
            lines.append(f"{name} {metric.value:.10g}")
        return RawResponse("\n".join([*lines, ""]).encode(), _MEDIA_TYPE)


def _read_replica(store: ReplicaStore) -> list[_Metric]:
    counts, lag_ms = store.counts, store.lag_ms
    return [
        _Metric(
            "lease_takeovers_total",
            "counter",
            "Dead gateways whose work this one took.",
            counts.taken_over,
        ),
        _Metric(
            "replica_lost_total",
            "counter",
            "How often others took this gateway for dead.",
            counts.lost,
        ),
        _Metric(
            "stale_writes_refused_total",
            "counter",
            "Batches of this gateway that were refused because others took it for dead.",
            counts.stale_writes,
        ),
        _Metric(
            "notify_lag_seconds",
            "gauge",
            "How long the last notification took; missing while none arrive.",
            None if lag_ms is None else lag_ms / 1000,
        ),
        _Metric(
            "claim_seconds_total",
            "counter",
            "Time spent on looking for work of dead gateways.",
            counts.claim_s,
        ),
        _Metric("claims_total", "counter", "How often that was.", counts.claims),
    ]
