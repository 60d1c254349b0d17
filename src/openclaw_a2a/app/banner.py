"""What `up` prints for people: what runs, where, and what to do next."""

import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from openclaw_a2a.app.gateway import Gateway
from openclaw_a2a.server.cards import account_url
from openclaw_a2a.server.health import AgentAvailability
from openclaw_a2a.settings import Account, base_url
from openclaw_a2a.settings.openclaw_config import OpenClawInstallation

_DEFAULT_URL = "http://127.0.0.1:9900"
"""Where commands look for a gateway by default."""

_PROGRAM = "openclaw-a2a"
_OPENCLAW = "openclaw-gateway"
_COLUMN = 12
_USUAL_CARD = "/.well-known/agent-card.json"


def print_banner(gateway: Gateway, found: OpenClawInstallation | None = None) -> None:
    """Print what runs, where, and what to do next; `found` is the OpenClaw of this machine."""
    settings, server = gateway.settings, gateway.settings.server
    local = base_url(server.host, server.port)
    lines = [f"openclaw-a2a is ready at {server.public_base_url or local}"]
    if server.public_base_url != local:
        host = f"[{server.host}]" if ":" in server.host else server.host
        lines.append(f"listening on {host}:{server.port}")
    lines.append("")
    accounts = sorted(settings.accounts, key=lambda account: account.id != "default")
    available = {one.account: one for one in gateway.availability.current()}
    for account in accounts:
        lines += _account_lines(account, gateway, available.get(account.id))
    lines += _other_agent_lines(gateway)
    lines += [f"  {'openclaw':<12} {text}" for text in _openclaw_texts(gateway, found)]
    where = settings.store.path or "nothing survives a stop"
    lines += [f"  {'store':<12} {settings.store.kind.value} ({where})", ""]
    if reasons := gateway.availability.unavailable_reasons():
        lines += [*(f"Unavailable: {reason}" for reason in reasons), ""]
    running = [account for account in accounts if account.is_running]
    if running:
        lines.append(f"Try it:  {_first_command(running[0], needs_token=not settings.is_open)}")
    print_lines(*lines, "Stop it: Ctrl-C")


def print_lines(*lines: str) -> None:
    """Print lines on standard error, if they can be written there."""
    # A closed pipe or a full disk must not keep the gateway from starting or stopping.
    with suppress(OSError):
        print("\n".join(lines), file=sys.stderr, flush=True)


def _account_lines(
    account: Account, gateway: Gateway, availability: AgentAvailability | None
) -> list[str]:
    if availability is None:
        reason = f"  {_padded(account.label)} not running: {account.not_running_reason}"
        return [reason] if account.enabled else []
    agent_id = account.default_agent_id
    is_supplied = agent_id in gateway.supplied_agents
    kind = "Python" if is_supplied else gateway.settings.agents[agent_id].adapter
    state = "" if availability.is_available else ", unavailable"
    return [
        f"  {_padded(availability.name)} agent {agent_id} ({kind}){state}",
        f"  {'':<12} card  {account_url(account, account.agent_card_path)}",
    ]


def _padded(name: str) -> str:
    """A name in the first column; some characters take two cells of a terminal, some none."""
    from rich.cells import cell_len  # not before there is a banner

    return name + " " * max(0, _COLUMN - cell_len(name))


def _other_agent_lines(gateway: Gateway) -> list[str]:
    """The agents of the settings that no account serves."""
    settings = gateway.settings
    served = {account.default_agent_id for account in settings.accounts if account.is_running}
    others = [name for name in settings.agents if name not in served | {*gateway.supplied_agents}]
    if not others:
        return []
    has_callers = settings.tools.agent_to_agent.enabled or settings.opt.enabled
    unreached = "no client reaches them: name each in an account"
    reach = "reached by calls and plans only" if has_callers else unreached
    return [f"  {'no account':<12} {', '.join(others)} ({reach})"]


def _openclaw_texts(gateway: Gateway, found: OpenClawInstallation | None) -> list[str]:
    """The OpenClaw gateways in use, or how to connect one."""
    agents = gateway.settings.agents
    mine = [one for name, one in agents.items() if name not in gateway.supplied_agents]
    if found is not None and not found.is_readable:
        return [f"its config cannot be read; see: {program()} doctor"]
    if any(one.is_placeholder for one in mine):
        return [f"not found; to add it: {program()} connect openclaw"]
    urls = dict.fromkeys(one.options.get("url") for one in mine if one.adapter == _OPENCLAW)
    return [url for url in urls if isinstance(url, str)]


def _first_command(account: Account, *, needs_token: bool) -> str:
    """A command that sends to this account, from the folder where the gateway runs."""
    token = "OPENCLAW_A2A_TOKEN=<token> " if needs_token else ""
    address = account_url(account, account.agent_card_path).removesuffix(_USUAL_CARD)
    flag = "" if address == _DEFAULT_URL else f" --url {address}"
    return f'{token}{program()} send{flag} "hello"'


def program() -> str:
    """The command as a shell in this folder finds it."""
    script = Path(sys.executable).with_name(_PROGRAM)
    if shutil.which(_PROGRAM) or not script.is_file():
        return _PROGRAM
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))
