"""A gateway that calls a remote agent, to be killed: python remote_server.py PORT FOLDER KIND.

The remote agent is in the process of the test; the file `peer-url` says where.
"""

import json
import sys
from pathlib import Path

from openclaw_a2a.app import build_app, serve_gateway
from openclaw_a2a.settings import load_settings


def main() -> int:
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    peer = (folder / "peer-url").read_text(encoding="utf-8")
    settings = {
        "outbound": {"enabled": True, "targets": [{"alias": "peer", "baseUrl": peer}]},
        "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
        "limits": {"perPeerRuns": 1000, "perPeerQueue": 10000, "pendingCalls": 100000},
    }
    config = folder / "openclaw-a2a.json5"
    config.write_text(json.dumps(settings), encoding="utf-8")
    flags = {"server.port": port, "data": str(folder), "store.kind": kind, "log.format": "json"}
    return serve_gateway(load_settings(config, overrides=flags, environ={}), build_app)


if __name__ == "__main__":
    sys.exit(main())
