"""Serving an agent from a script: a function in, an A2A agent out."""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from openclaw_a2a.agents import AgentAdapter, CallableAgent
from openclaw_a2a.agents.bridge import AdapterAgent
from openclaw_a2a.app.gateway import Gateway, build_app
from openclaw_a2a.app.server import serve_gateway
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import Json
from openclaw_a2a.ports import Agent
from openclaw_a2a.settings import Loaded, Settings, load_settings


def serve(
    answer: Callable[..., Any] | Agent | AgentAdapter,
    *,
    name: str | None = None,
    port: int | None = None,
    settings: Mapping[str, Json] | None = None,
) -> int:
    """Serve a function (or any Agent or AgentAdapter) as an A2A agent until the process is stopped.

    The function takes the text (and, when it wants, the turn) and returns or yields the answer;
    it may be sync, async or a generator. `name` stands on the agent card. Settings come from the
    settings file and the environment as for `openclaw-a2a up`; `settings` has dotted paths
    (`{"limits.runs": 4}`) and wins. Unless they say otherwise, tasks are kept in a database of
    this agent's own below the data folder.

    When it cannot start it says why on stderr and ends the script with exit code 2.
    """
    shown = name or getattr(answer, "__name__", type(answer).__name__)
    try:
        loaded = _load(shown, {**_flags(shown, port), **(settings or {})})
        agent = _agent(answer)

        def gateway(final: Settings) -> Gateway:
            return build_app(final, agents={final.default_account.default_agent_id: agent})

        return serve_gateway(loaded, gateway)
    except GatewayError as error:
        print(f"error {error.code}: {error.message}", file=sys.stderr)
        raise SystemExit(2) from None


def _agent(answer: Callable[..., Any] | Agent | AgentAdapter) -> Agent:
    if isinstance(answer, AgentAdapter):
        return AdapterAgent(answer)
    if hasattr(answer, "recovery"):
        return cast("Agent", answer)
    return CallableAgent(cast("Callable[..., Any]", answer))


def _flags(name: str, port: int | None) -> dict[str, Json]:
    flags: dict[str, Json] = {
        "channels.a2a.accounts.default.label": name,
        "channels.a2a.accounts.default.agentStyle": "task-generating",
        # A script serves its own agent and nobody else's.
        "openclaw.enabled": False,
    }
    if port is not None:
        flags["server.port"] = port
    return flags


def _load(name: str, overrides: Mapping[str, Json]) -> Loaded:
    loaded = load_settings(overrides=overrides)
    if any(path == "data" or path.startswith("store.") for path in loaded.origins):
        return loaded
    folder = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent"
    own = Path(loaded.settings.data) / "agents" / folder
    return load_settings(overrides={**overrides, "data": str(own)})
