"""The options of the `openclaw` command, shared by the settings and the library."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
THINKING_LEVELS: tuple[str, ...] = get_args(Thinking)
"""The levels that `--thinking` may be given."""

GatewayMode = bool | Literal["auto"]

_MOST = 2**31 - 1


class OpenClawCliOptions(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How to run the `openclaw` command for a turn."""

    agent_id: Annotated[
        str,
        Meta(description="Which OpenClaw agent answers; left out: the one with this agent's id."),
    ] = ""
    thinking: Annotated[Thinking, Meta(description="How hard the model thinks.")] = "low"
    timeout: Annotated[
        float, Meta(gt=0, le=_MOST, description="How many seconds one turn may take.")
    ] = 300.0
    openclaw_path: Annotated[
        str, Meta(min_length=1, description="The `openclaw` program, by name or path.")
    ] = "openclaw"
    working_directory: Annotated[
        str, Meta(description="Directory to run in; left out: the gateway's.")
    ] = ""
    env: Annotated[
        dict[str, str], Meta(description="Variables added to the gateway's own environment.")
    ] = {}
    gateway_mode: Annotated[
        GatewayMode,
        Meta(
            description="Ask a running OpenClaw gateway (true), never (false), or only when one"
            " holds the state directory (auto)."
        ),
    ] = "auto"
    max_output_bytes: Annotated[int, Meta(ge=1, le=_MOST, description="Most a turn may write.")] = (
        64 * 1024 * 1024
    )
    kill_grace_seconds: Annotated[
        float, Meta(ge=0, le=_MOST, description="Time between SIGTERM and SIGKILL.")
    ] = 4.0
