"""`config`: check the settings, show what is in force, print their schema."""

import asyncio
from collections.abc import Iterable
from typing import Annotated

import msgspec
from cyclopts import App

from openclaw_a2a.cli.errors import DONE, USAGE_ERROR, describe_failure
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag, switch
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message, print_table
from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.settings import (
    CheckedSettings,
    Settings,
    check_settings,
    describe_settings,
    effective_settings,
    load_settings,
    settings_schema,
)

app = App(name="config", help="Check and show the settings; print their schema.")

_ORIGIN = Annotated[bool, switch("Say where each setting comes from.")]


@app.command
def check(*, config: ConfigFlag = None, as_json: JsonFlag = False) -> int:
    """Check the settings and tell every problem; nothing is started."""
    examined = complete_check(check_settings(config))
    loaded, found = examined.loaded, examined.problems
    warnings = (*loaded.warnings, *(() if found else _issuer_warnings(loaded.settings)))
    error = loaded.invalid(found)
    error.details["nextStep"] = "Correct the settings and check again."
    if as_json:
        document = {
            "ok": not found,
            "path": str(loaded.path) if loaded.path else None,
            "problems": error.problems,
            "warnings": warnings,
        }
        print_json({**document, "error": describe_failure(error)} if found else document)
        return USAGE_ERROR if found else DONE
    if found:
        raise error
    for warning in warnings:
        print_message(f"warning {warning.path}: {warning.message}", "yellow")
    where = loaded.path or "no settings file; defaults and environment"
    print_data(f"The settings are right ({where}).")
    return DONE


@app.command(name="show")
def show_settings(
    *, origin: _ORIGIN = False, config: ConfigFlag = None, as_json: JsonFlag = False
) -> int:
    """Show the settings in force; secrets stay hidden."""
    loaded = load_settings(config)
    rows = describe_settings(loaded.settings, loaded.origins)
    if as_json:
        print_json(rows if origin else effective_settings(loaded.settings))
        return DONE
    cells = [(row.path, row.origin, _value_text(row.value)) for row in rows]
    print_table(cells if origin else [(path, value) for path, _, value in cells])
    return DONE


@app.command
def schema(*, as_json: JsonFlag = True) -> int:
    """Print the JSON Schema of the settings file, for editors (with or without --json)."""
    print_json(settings_schema(), pretty=as_json)
    return DONE


def complete_check(examined: CheckedSettings) -> CheckedSettings:
    """The settings with what only their users know: options of agents, and the remote targets."""
    loaded, problems = examined.loaded, examined.problems
    problems += _agent_problems(loaded.settings, problems)
    if loaded.settings.outbound:
        from openclaw_a2a.remote.config import read_outbound

        try:
            warnings = (*loaded.warnings, *read_outbound(loaded.settings.outbound).warnings)
            loaded = msgspec.structs.replace(loaded, warnings=warnings)
        except SettingsInvalid as invalid:
            problems += invalid.problems
    return CheckedSettings(loaded, problems)


def _issuer_warnings(settings: Settings) -> list[Problem]:
    """Issuers whose keys cannot be fetched now: the gateway starts without them."""
    if not settings.oidc:
        return []
    from openclaw_a2a.app.wiring.oidc import probe_issuers

    failures = asyncio.run(probe_issuers(settings.oidc))
    path = "channels.a2a.security.oidc"
    return [Problem(path, one, "unreachable") for one in failures if one is not None]


def _agent_problems(settings: Settings, known: Iterable[Problem]) -> tuple[Problem, ...]:
    """What is wrong with the options of the agents' adapters, besides what is known already."""
    from openclaw_a2a.agents import build_agent

    nameless = {one.path for one in known}
    problems: list[Problem] = []
    for agent_id, agent in settings.agents.items():
        path = f"agents.{agent_id}"
        if nameless & {path, f"{path}.adapter"}:
            continue
        try:
            build_agent(
                agent.adapter, agent.options, environment=None, path=path, folder=agent.folder
            )
        except SettingsInvalid as error:
            problems += error.problems
    return tuple(problems)


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
