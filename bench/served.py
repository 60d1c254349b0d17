"""Serves a gateway that is measured, in a process of its own."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def serve_measured(
    data: Path,
    port: int,
    *,
    agents: Mapping[str, Any],
    settings: Mapping[str, Any],
    profile: Path | None,
) -> None:
    """Serve until it is told to stop; with `profile`, where its time went is written there."""
    from openclaw_a2a.app import build_app, serve_gateway
    from openclaw_a2a.model.ids import AgentId
    from openclaw_a2a.settings import load_settings

    config = data / "bench.json5"
    named = {name: {"adapter": "echo"} for name in agents}
    config.write_text(json.dumps({"agents": named}), encoding="utf-8")
    overrides = {
        "server.port": port,
        "server.stopSeconds": 0,
        "data": str(data),
        "log.level": "error",
        "limits.runs": 10_000,
        "limits.perPeerRuns": 10_000,
        "limits.perPeerRate": 0,
        "limits.perPeerRequests": 0,
        "retention.keepEnded": 1_000_000,
        **settings,
    }
    loaded = load_settings(config, overrides=overrides, environ={})
    given = {AgentId(name): agent for name, agent in agents.items()}

    def serve_all() -> None:
        serve_gateway(loaded, lambda found: build_app(found, agents=given))

    if profile is None:
        serve_all()
    else:
        import cProfile

        # By CPU time: the clock would show where the event loop waits for the interpreter lock.
        profiler = cProfile.Profile(time.thread_time)
        profiler.runcall(serve_all)
        profiler.dump_stats(profile)
