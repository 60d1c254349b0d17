"""`connect openclaw`: plan and take the steps that serve the agents of the local OpenClaw."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Self

import anyio
import msgspec
from cyclopts import App

from openclaw_a2a.cli.check_result import Check, CheckResult, CheckStatus, print_checks
from openclaw_a2a.cli.commands.gateway import complete_check
from openclaw_a2a.cli.errors import DONE, FAILED
from openclaw_a2a.cli.openclaw_checks import check_openclaw
from openclaw_a2a.cli.options import ConfigFlag, JsonFlag, switch
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.remote.config import TOOL_NAME
from openclaw_a2a.settings import CheckedSettings, Settings, check_settings, find_running_gateways
from openclaw_a2a.settings.openclaw_config import (
    GENERATE_TOKEN_COMMAND,
    OpenClawInstallation,
    find_openclaw,
)
from openclaw_a2a.settings.settings_file import FileChange, plan_openclaw_section
from openclaw_a2a.settings.sources import HIDDEN_FILE
from openclaw_a2a.tools.openclaw_plugin import (
    CONFIG_PATCH,
    PLUGIN_FOLDER,
    PLUGIN_ID,
    PLUGIN_TOOLS,
    PluginInstallation,
    plan_installation,
    run_openclaw,
)

_INSTALL = ("npm install -g openclaw@latest", "openclaw onboard")
_KEY = "gateway.auth.token"


class SetupStep(JsonStruct, frozen=True, omit_defaults=False):
    """One thing that must be so: `is_done` says that it is, else the commands make it so.

    `is_ours` is true for steps that `run_setup` takes; the others are for a person.
    """

    name: str
    is_done: bool
    what: str
    commands: tuple[str, ...] = ()
    is_ours: bool = False

    @classmethod
    def done(cls, name: str, what: str) -> Self:
        """A step that is taken already."""
        return cls(name, is_done=True, what=what)

    @classmethod
    def to_do(cls, name: str, what: str, *commands: str, is_ours: bool = False) -> Self:
        """A step that is left."""
        return cls(name, is_done=False, what=what, commands=commands, is_ours=is_ours)


class SetupPlan(msgspec.Struct, frozen=True):
    """The steps in their order, and what is needed to take those that are ours."""

    steps: tuple[SetupStep, ...]
    addition: FileChange | None = None
    wiring: PluginInstallation | None = None

    @property
    def is_blocked(self) -> bool:
        """True when a person has to do something first."""
        return not (self.steps[0].is_done or self.steps[0].is_ours)


def plan_setup(
    examined: CheckedSettings, findings: list[CheckResult], *, path: Path | None
) -> SetupPlan:
    """What there is to do; nothing is changed. `path` is the settings file to write."""
    found = examined.loaded.openclaw or find_openclaw()
    if found is None or found.config_path is None:
        what = "no OpenClaw config was found on this machine; install OpenClaw and set it up"
        return SetupPlan((SetupStep.to_do("openclaw", what, *_INSTALL),))
    if not found.is_readable:
        return SetupPlan((SetupStep.to_do("openclaw", found.warnings[0]),))
    settings = examined.loaded.settings
    addition = plan_openclaw_section(examined.loaded.path or path, found.config_path)
    wiring = plan_installation(settings, found.config_path)
    steps = (
        SetupStep.done("openclaw", f"its config is {found.config_path}"),
        _token_step(found),
        _gateway_step(found, findings),
        _settings_step(addition),
        _plugin_step(settings, wiring),
    )
    return SetupPlan(steps, addition, wiring)


def _token_step(found: OpenClawInstallation) -> SetupStep:
    if found.auth_mode == "none":
        return SetupStep.done("token", "its gateway asks for none")
    if found.token is not None:
        return SetupStep.done("token", "taken from its config whenever it is needed")
    if found.auth_mode != "token":
        what = f"its gateway wants {found.auth_mode}; only token and none are supported"
        set_mode = "openclaw config set gateway.auth.mode token"
        return SetupStep.to_do("token", what, set_mode, GENERATE_TOKEN_COMMAND)
    if any(f"has no {_KEY}" in warning for warning in found.warnings):
        what = (
            "its gateway has no lasting token; OpenClaw's own command makes one (it keeps a backup "
            "of the config, and no comments), then the gateway needs a restart"
        )
        return SetupStep.to_do("token", what, GENERATE_TOKEN_COMMAND, is_ours=True)
    return SetupStep.to_do("token", found.warnings[-1])


def _gateway_step(found: OpenClawInstallation, findings: list[CheckResult]) -> SetupStep:
    is_broken = (
        one for one in findings if one.group == "openclaw" and one.status is CheckStatus.BROKEN
    )
    first = next(is_broken, None)
    if first is None:
        return SetupStep.done("gateway", f"{found.url} lets us in")
    if first.name == "gateway":
        return SetupStep.to_do("gateway", "does not run; start it", "openclaw gateway run")
    return SetupStep.to_do("gateway", f"{first.name}: {first.detail}; {first.fix}")


def _settings_step(addition: FileChange) -> SetupStep:
    if not addition.text:
        return SetupStep.done("settings", f"{addition.path} has an openclaw section already")
    who = "gets" if addition.is_possible else "is for you to edit; add"
    what = f"{addition.path} {who} the lines"
    lines = addition.text.splitlines()
    return SetupStep.to_do("settings", what, *lines, is_ours=addition.is_possible)


def _plugin_step(settings: Settings, wiring: PluginInstallation) -> SetupStep:
    """The tools are on OpenClaw's side when there are some, and only then."""
    is_outbound = settings.outbound.get("enabled") is True
    has_tools = is_outbound or settings.tools.agent_to_agent.enabled
    if not has_tools or not settings.tools.http:
        what = (
            "not needed: no tools are offered (outbound.enabled or tools.agentToAgent.enabled, "
            "and tools.http)"
        )
        return SetupStep.done("plugin", what)
    if wiring.is_complete:
        return SetupStep.done("plugin", f"{PLUGIN_ID} is loaded from {PLUGIN_FOLDER}")
    if settings.server.port == 0:
        what = "the plugin needs an address that stays; set server.port"
        return SetupStep.to_do("plugin", what)
    if wiring.is_forbidden:
        what = f"OpenClaw's config forbids the plugin {PLUGIN_ID}; allow it (plugins.deny too)"
        return SetupStep.to_do("plugin", what, f"openclaw plugins enable {PLUGIN_ID}")
    what = "gives OpenClaw's agents the tools; OpenClaw's own commands load it"
    return SetupStep.to_do("plugin", what, *wiring.commands(), is_ours=True)


async def run_setup(plan: SetupPlan, show_progress: Callable[[str], None]) -> list[str]:
    """Take the steps that are ours; what was done, a sentence each.

    `show_progress` gets what is begun: OpenClaw's commands take up to a minute.

    Raises: AgentFailed (OpenClaw's command did not work), SettingsInvalid (the file).
    """
    done: list[str] = []
    for step in plan.steps:
        if step.is_done or not step.is_ours:
            continue
        if step.name == "token":
            show_progress("Making a token with OpenClaw's own command ...")
            await _make_token()
            done.append("OpenClaw's gateway has a token now; restart it: openclaw gateway restart")
        elif step.name == "plugin" and plan.wiring is not None:
            show_progress("Installing the plugin with OpenClaw's own commands, up to a minute ...")
            await plan.wiring.install()
            done.append(f"OpenClaw's agents have our tools now, by the plugin {PLUGIN_ID}.")
            if plan.wiring.found.is_reload_off:
                done.append("OpenClaw must take it up; restart it: openclaw gateway restart")
        elif plan.addition is not None:
            plan.addition.write()
            done.append(f"The section openclaw is in {plan.addition.path} now.")
    return done


async def _make_token() -> None:
    """Have OpenClaw's own command put a token into its config; no list of processes shows it."""
    auth = {"mode": "token", "token": secrets.token_hex(24)}
    patch = msgspec.json.encode({"gateway": {"auth": auth}})
    await run_openclaw(*CONFIG_PATCH, given=patch, instead=GENERATE_TOKEN_COMMAND)


app = App(name="connect", help="Serve the agents of the OpenClaw on this machine.")


@app.command
def openclaw(
    *,
    dry_run: Annotated[bool, switch("Show what there is to do, do nothing.")] = False,
    config: ConfigFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Show the OpenClaw of this machine, and do what is needed to offer its agents.

    The settings file gets a section `openclaw`; what is written in it stays as it is. OpenClaw's
    own config is changed by its own commands only: when it lacks a token, and when its agents are
    to get the tools that are offered here.
    """
    examined = complete_check(check_settings(config))
    if examined.problems:
        _print_hidden_file(examined)
        raise examined.loaded.invalid(examined.problems)

    def show_progress(text: str) -> None:
        if not as_json:
            print_message(text, "dim")

    async def go() -> tuple[list[CheckResult], SetupPlan, list[str]]:
        show_progress("Looking at OpenClaw ...")
        findings = await check_openclaw(examined, run_agents=False)
        plan = plan_setup(
            examined, findings, path=config.expanduser().absolute() if config else None
        )
        done = [] if dry_run else await run_setup(plan, show_progress)
        return findings, plan, done

    findings, plan, done = anyio.run(go)
    left = [step for step in plan.steps if not step.is_done and (dry_run or not step.is_ours)]
    if as_json:
        steps = {"steps": plan.steps, "done": done, "dryRun": dry_run}
        print_json({"ok": not left, "findings": findings, **steps})
        return FAILED if plan.is_blocked else DONE
    open_steps = [
        Check("to do", step.name).note(step.what, "\n".join(step.commands))
        for step in plan.steps
        if not step.is_done and not (done and step.is_ours)
    ]
    print_checks([*([] if plan.is_blocked else findings), *open_steps])
    print_data()
    for sentence in (*done, *([] if plan.is_blocked else _tool_lines(examined, plan))):
        print_data(sentence)
    _print_hidden_file(examined)
    if dry_run and any(step.is_ours for step in left):
        print_data("Nothing was changed. To do it: openclaw-a2a connect openclaw")
    else:
        print_data(_start_line(examined, is_changed=bool(done), is_next=not left))
    return FAILED if plan.is_blocked else DONE


def _tool_lines(examined: CheckedSettings, plan: SetupPlan) -> list[str]:
    """Which tools OpenClaw's agents have, and where to switch on the others."""
    settings = examined.loaded.settings
    calls = tuple(one for one in PLUGIN_TOOLS if one.startswith(("agent_", "debate_")))
    planning = tuple(one for one in PLUGIN_TOOLS if one not in (TOOL_NAME, *calls))
    groups = (
        ((TOOL_NAME,), settings.outbound.get("enabled") is True, "outbound.enabled"),
        (calls, settings.tools.agent_to_agent.enabled, "tools.agentToAgent.enabled"),
        (planning, settings.opt.enabled and settings.opt.tools, "opt.enabled and opt.tools"),
    )
    path = plan.addition.path if plan.addition is not None else examined.loaded.path
    on = [name for names, is_on, _ in groups if is_on for name in names]
    off = [f"{', '.join(names)} ({switch})" for names, is_on, switch in groups if not is_on]
    lines = [f"Tools of OpenClaw's agents: {', '.join(on) or 'none'}."]
    if off:
        lines.append(f"Off, to be switched on in {path}: {'; '.join(off)}.")
    return lines


def _print_hidden_file(examined: CheckedSettings) -> None:
    for warning in examined.loaded.warnings:
        if warning.keyword == HIDDEN_FILE:
            print_message(f"warning {warning.path}: {warning.message}", "yellow")


def _start_line(examined: CheckedSettings, *, is_changed: bool, is_next: bool) -> str:
    running = find_running_gateways(examined.loaded.settings.data)
    if not running:
        start = "Start the gateway" if is_next else "Then start the gateway"
        return f"{start}: openclaw-a2a up"
    where = f"{running[0].address} (process {running[0].pid})"
    if is_changed:
        return f"Restart the gateway that runs at {where}: stop it, then openclaw-a2a up"
    return f"The gateway runs at {where}; restart it when you change the settings."
