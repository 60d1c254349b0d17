"""The arguments of the OpenClaw adapter, checked when it is made and not when it is used."""

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Annotated, TypedDict, cast

import msgspec
from msgspec import Meta

from openclaw_a2a.agents.openclaw_cli.options import (
    THINKING_LEVELS,
    GatewayMode,
    OpenClawCliOptions,
    Thinking,
)
from openclaw_a2a.model.ids import Json
from openclaw_a2a.ports import Store
from openclaw_a2a.settings.report import nearest

_ALSO_TAKEN = ("session_id", "agent_id")


class OpenClawKeywords(TypedDict, total=False):
    """The further arguments of `OpenClawAgentAdapter`.

    `thinking` ("low") is one of off, minimal, low, medium, high and xhigh; `timeout` (300) is in
    seconds, for the whole command; `env_vars` are added to the process's own. `async_mode` (True):
    `handle` returns a task at once, kept in `task_store` (a store, or
    the path of a SQLite file; memory) until `task_ttl_seconds` (3600;
    None: for ever) after its end, looked at every `cleanup_interval_seconds` (300).
    `gateway_mode` (False): run without `--local`, or `"auto"`: only when a gateway is in the way.
    """

    thinking: str
    timeout: float
    openclaw_path: str | PathLike[str]
    working_directory: str | PathLike[str] | None
    env_vars: Mapping[str, str] | None
    async_mode: bool
    task_store: Store | str | PathLike[str] | None
    task_ttl_seconds: float | None
    cleanup_interval_seconds: float
    gateway_mode: GatewayMode


class Checked(msgspec.Struct, frozen=True):
    """The arguments, all of the right kind."""

    thinking: Thinking = "low"
    timeout: Annotated[float, Meta(gt=0)] = 300.0
    openclaw_path: Annotated[str, Meta(min_length=1)] = "openclaw"
    working_directory: str | None = None
    env_vars: dict[str, str] | None = None
    async_mode: bool = True
    task_ttl_seconds: Annotated[float, Meta(ge=0)] | None = 3600.0
    cleanup_interval_seconds: Annotated[float, Meta(gt=0)] = 300.0
    gateway_mode: GatewayMode = False

    def cli_options(self) -> OpenClawCliOptions:
        """What of them is for the command."""
        return OpenClawCliOptions(
            thinking=self.thinking,
            timeout=self.timeout,
            openclaw_path=self.openclaw_path,
            working_directory=self.working_directory or "",
            env=self.env_vars or {},
            gateway_mode=self.gateway_mode,
        )


def check_keywords(given: OpenClawKeywords) -> Checked:
    """The arguments with their defaults; `task_store` is looked at elsewhere.

    Raises: ValueError for a value that cannot be, TypeError for an argument that there is not.
    """
    known = [*OpenClawKeywords.__annotations__, *_ALSO_TAKEN]
    for name in given:
        if name not in known:
            hint = nearest(name, known)
            raise TypeError(f"OpenClawAgentAdapter takes no argument {name!r}; {hint}")
    thinking = given.get("thinking", "low")
    if thinking not in THINKING_LEVELS:
        raise ValueError(
            f"thinking is {thinking!r}; it must be one of {', '.join(THINKING_LEVELS)}"
        )
    return Checked(
        **{
            field.name: _checked(field.name, given[field.name], field.type)
            for field in msgspec.structs.fields(Checked)
            if field.name in given
        }
    )


def _checked(name: str, value: Json, kind: Json) -> Json:
    """The value. Its words are not told: there may be secrets among them."""
    if isinstance(value, PathLike):
        value = fspath(cast("PathLike[str]", value))
    elif isinstance(value, Mapping):
        value = dict(cast("Mapping[str, Json]", value))
    try:
        if value != value:
            raise msgspec.ValidationError("Expected a number")
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name} cannot be used: {error}") from None
