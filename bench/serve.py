#!/usr/bin/env python3
"""Serve the bench agent with our gateway: durable SQLite, all checks on.

Run: python serve.py --port PORT --data FOLDER (nothing is read from files or the environment)
"""

import argparse
import sys
from pathlib import Path

from agent import BenchAgent
from openclaw_a2a.app import build_app, serve_gateway
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.settings import load_settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9900)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "json-file", "memory"])
    parser.add_argument("--keep-deltas", action="store_true", help="never join pieces of text")
    parser.add_argument("--keep-ended", type=int, default=1_000_000, help="most ended tasks kept")
    args = parser.parse_args()
    config = args.data / "bench.json5"
    config.write_text("{ agents: { bench: { adapter: 'echo' } } }", encoding="utf-8")
    loaded = load_settings(
        config,
        overrides={
            "server.port": args.port,
            "data": str(args.data),
            "store.kind": args.store,
            "limits.joinDeltas": not args.keep_deltas,
            "limits.runs": 20_000,
            "limits.perPeerRuns": 20_000,
            "limits.streams": 10_000,
            "limits.connections": 12_000,
            "retention.keepEnded": args.keep_ended,
            "retention.sweepSeconds": 5,
        },
        environ={},
    )
    agents = {AgentId("bench"): BenchAgent()}
    return serve_gateway(loaded, lambda settings: build_app(settings, agents=agents))


if __name__ == "__main__":
    sys.exit(main())
