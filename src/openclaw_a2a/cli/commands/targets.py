"""`targets`: list, add, remove and check the remote agents that the settings name."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.errors import DONE, FAILED, usage_error
from openclaw_a2a.cli.options import ConfigFlag, JsonFlag, YesFlag, confirm, switch
from openclaw_a2a.cli.render.terminal import (
    ItemTable,
    print_data,
    print_json,
    print_message,
    print_result,
)
from openclaw_a2a.engine.audit_log import record_command
from openclaw_a2a.model.errors import InvalidRequest, SettingsInvalid
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings.load import OutboundSettings, local_gateway, read_outbound_section

if TYPE_CHECKING:
    from pathlib import Path

    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.remote.result import RemoteTarget
    from openclaw_a2a.remote.target_status import TargetCheck
    from openclaw_a2a.settings.settings_file import FileChange

_Found = TypeVar("_Found")

app = App(name="targets", help="List, add, remove and check the remote agents of the settings.")

_TABLE: "ItemTable[RemoteTarget]" = ItemTable(
    {
        "ALIAS": lambda one, _: f"{one.alias} *" if one.is_default else one.alias,
        "REACHABLE": lambda one, _: "no" if one.trouble else "yes",
        "STREAMS": lambda one, _: {True: "yes", False: "no", None: "-"}[one.is_streaming],
        "NAME": lambda one, _: one.name or "-",
        "ADDRESS": lambda one, _: one.url,
        "SKILLS": lambda one, _: ", ".join(one.skills) or "-",
    },
    colours={"yes": "green", "no": "red"},
    optional=("STREAMS", "SKILLS", "NAME"),
    min_cells={"NAME": 12, "ADDRESS": 28, "SKILLS": 12},
)
_TO_AGENTS = "To give it to agents, as the tool remote_agent, set outbound.enabled to true."


@Parameter(name="*")
@dataclass(frozen=True)
class TargetOptions:
    """What else is said of a target."""

    default: Annotated[bool, switch("The one meant when none is named.")] = False
    description: Annotated[str | None, Parameter(help="What it is for.")] = None
    tag: Annotated[list[str] | None, Parameter(negative=(), help="May be repeated.")] = None
    bearer_env: Annotated[
        str | None, Parameter(help="Show the bearer token in this environment variable.")
    ] = None
    api_key_env: Annotated[
        str | None, Parameter(help="Show the API key in this environment variable.")
    ] = None
    transport: Annotated[
        list[Literal["JSONRPC", "HTTP+JSON", "GRPC"]] | None,
        Parameter(negative=(), help="Try this first; may be repeated."),
    ] = None


PLAIN = TargetOptions()
Alias = Annotated[str, Parameter(help="What it is called here.")]


@app.command(name="list")
def list_(*, config: ConfigFlag = None, as_json: JsonFlag = False) -> int:
    """List the targets with what their cards say now.

    With --json the envelope of the tool remote_agent.
    """
    from openclaw_a2a.remote.result import RemoteTarget

    envelope = _with_agents(lambda remote: remote.execute({"action": "list_targets"}), config)
    if as_json:
        print_json(envelope)
        return DONE
    targets = [RemoteTarget.from_entry(one) for one in envelope["summary"]["targets"]]
    _TABLE.print(targets, empty="No targets. Add one: openclaw-a2a targets add ALIAS ADDRESS")
    if any(one.is_default for one in targets):
        print_message("* the default", "dim")
    for one in targets:
        if one.trouble:
            print_message(f"{one.alias}: {one.trouble}", "yellow")
    return DONE


@app.command
def add(
    alias: Alias,
    address: Annotated[str, Parameter(help="Its address, without the path of its card.")],
    /,
    *,
    options: TargetOptions = PLAIN,
    config: ConfigFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Add a target to the settings file; what is written in it stays as it is."""
    from openclaw_a2a.settings.settings_file import plan_target_addition

    section = read_outbound_section(config)
    target = _target(alias, address, options)
    _check(section, target)
    plan = plan_target_addition(config.expanduser().absolute() if config else section.path, target)
    if not plan.is_possible:
        raise _by_hand(plan, "add to it by hand")
    plan.write()
    _record("target-added", alias, config)
    _print_change("added", plan, alias, as_json=as_json)
    if section.values.get("enabled") is not True and not as_json:
        print_message(_TO_AGENTS)
    return DONE


def _record(event: str, alias: str, config: "Path | None") -> None:
    with suppress(SettingsInvalid):  # then it is not known which gateway is meant
        record_command(local_gateway(config).data, event, target=alias)


@app.command
def remove(
    alias: Alias, /, *, yes: YesFlag = False, config: ConfigFlag = None, as_json: JsonFlag = False
) -> int:
    """Take a target out of the settings file; everything else in it stays as it is."""
    from openclaw_a2a.settings.settings_file import plan_target_removal

    section = read_outbound_section(config)
    plan = plan_target_removal(section.path, alias) if section.path else None
    if plan is None:
        if section.origin.startswith("environment"):
            raise usage_error(f"the targets are set by the {section.origin}, not by a file")
        place = f"{section.path} has" if section.path else "there is no settings file with"
        step = "See the targets there are: openclaw-a2a targets list"
        raise usage_error(f"{place} no target {alias}", step, code="target-unknown")
    if not plan.is_possible:
        raise _by_hand(plan, "take out of it by hand")
    question = f"Take {alias} out of {plan.path}? [y/N] "
    if not yes and not confirm(question, f"nobody can be asked whether {alias} is to go"):
        print_message("Nothing was changed.")
        return DONE
    plan.write()
    _record("target-removed", alias, config)
    _print_change("removed", plan, alias, as_json=as_json)
    return DONE


@app.command
def check(
    target: Annotated[str, Parameter(help="Its alias, or the address of any A2A agent.")],
    /,
    *,
    config: ConfigFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Read a target's card and check that it accepts our credentials; its agent gets no message."""
    from openclaw_a2a.cli.remote_request import (
        print_envelope,
        remote_exit_code,
        report_remote_failure,
    )
    from openclaw_a2a.remote.result import RemoteAgentFailed

    try:
        found = _with_agents(lambda remote: remote.check(target), config)
    except RemoteAgentFailed as error:
        if not as_json:
            return report_remote_failure(error.result, target)
        print_envelope(error.result.envelope)
        return remote_exit_code(error.result)
    if as_json:
        print_json({"ok": found.is_let_in is True, **msgspec.to_builtins(found)})
    else:
        _show_check(found)
    return DONE if found.is_let_in else FAILED


def _with_agents(
    request: "Callable[[RemoteAgents], Awaitable[_Found]]", config: "Path | None"
) -> _Found:
    from openclaw_a2a.cli.remote_request import run_with_agents
    from openclaw_a2a.library.remote_agents import RemoteAgents

    return run_with_agents(RemoteAgents(config, may_use_any_url=True), request)


def _target(alias: str, address: str, options: TargetOptions) -> JsonObject:
    if options.bearer_env and options.api_key_env:
        raise usage_error("a target shows a bearer token or an API key, not both")
    kind = "bearer" if options.bearer_env else "apiKey"
    variable = options.bearer_env or options.api_key_env
    target: JsonObject = {
        "alias": alias.strip(),
        "baseUrl": address.strip(),
        "description": options.description,
        "tags": options.tag,
        "preferredTransports": options.transport,
        "default": options.default or None,
        "auth": {"type": kind, "token": f"${{{variable}}}"} if variable else None,
    }
    return {key: value for key, value in target.items() if value is not None}


def _check(section: OutboundSettings, target: JsonObject) -> None:
    """Refuse what the section could not be read with. Raises: InvalidRequest, SettingsInvalid."""
    from openclaw_a2a.remote.config import ERROR_PREFIX, parse_config
    from openclaw_a2a.remote.target_secrets import has_variables
    from openclaw_a2a.remote.targets import normalize_target_url

    if section.origin.startswith("environment"):
        message = f"the targets are set by the {section.origin}, and a file would not be heard"
        raise usage_error(message)
    try:
        if not has_variables(target["baseUrl"]):
            normalize_target_url(target["baseUrl"])
        known = parse_config(section.values).targets and section.values["targets"]
        parse_config({**section.values, "targets": [*known, target]})
    except (TypeError, ValueError) as error:
        raise usage_error(str(error).removeprefix(ERROR_PREFIX).strip()) from None


def _by_hand(plan: "FileChange", what: str) -> InvalidRequest:
    message = f"{plan.path} cannot be changed safely; {what}:\n{plan.text}"
    return usage_error(message, code="settings-by-hand")


def _print_change(done: str, plan: "FileChange", alias: str, *, as_json: bool) -> None:
    document = {"ok": True, done: alias, "path": str(plan.path)}
    print_result(document, f"{alias}  {done}  {plan.path}", as_json=as_json)
    if not as_json:
        print_message("A gateway that runs takes it up when it is started again.", "dim")
    if done == "added" and not as_json:
        print_message(f"Check it: openclaw-a2a targets check {alias}")


def _show_check(found: "TargetCheck") -> None:
    words = {True: "yes", False: "no", None: "not known"}
    facts = {
        "card": found.card_url,
        "speaks": f"{found.transport} {found.protocol_version} at {found.address}",
        "streams": words[found.is_streaming],
        "skills": ", ".join(found.skills) or "-",
        "wants": " or ".join(found.auth_wanted) or "no credentials, its card says",
        "we show": found.auth_given or "none",
        "lets us in": words[found.is_let_in],
    }
    print_data(f"{found.name or 'an agent without a name'}")
    for name, fact in facts.items():
        print_data(f"{name:<10} {fact}")
    if found.trouble:
        print_message(f"{found.trouble}", "yellow")
    if found.is_let_in is False:
        print_message(
            "Give the target credentials: auth in the settings, or add it with --bearer-env NAME."
        )
