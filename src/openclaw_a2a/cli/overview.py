"""The table of commands, and the `--help` page made from it without loading any command."""

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("gateway:up", "Start the gateway and serve until it is stopped."),
    "send": ("agent:send", "Send a message to an agent and stream the answer."),
    "tasks": ("tasks:app", "List, show, watch, cancel and delete tasks (also: task)."),
    "call": ("calls:call", "Call a skill of an agent, and optionally wait for the answer."),
    "debate": ("calls:debate", "Start a debate between agents and follow it live."),
    "calls": ("calls:app", "List, show and watch calls between agents."),
    "objectives": (
        "objectives:app",
        "Create, show, plan, run, watch, answer and delete objectives.",
    ),
    "dashboard": ("dashboard:app", "Open the dashboard in a browser."),
    "top": ("top:top", "Show tasks, calls and objectives live; answer and cancel by key."),
    "demo": ("demo:demo", "Start a gateway with scripted agents, to see the dashboard alive."),
    "approvals": ("pending:approvals", "List, allow and deny commands that agents want to run."),
    "replicas": (
        "replicas:replicas",
        "List the gateways that share one PostgreSQL, and drain one.",
    ),
    "deliveries": ("pending:deliveries", "List failed deliveries and retry them."),
    "audit": ("audit:app", "Show who changed what, and check that the log was not edited."),
    "targets": ("targets:app", "List, add, remove and check the remote agents of the settings."),
    "remote": (
        "remote:app",
        "Send messages to remote agents; watch and cancel their tasks.",
    ),
    "card": ("agent:card", "Show an agent card."),
    "token": ("token:app", "Create, list, rotate and revoke tokens of peers and tools."),
    "mcp": ("mcp:mcp", "Serve the tools over MCP on standard input and output."),
    "connect": ("connect:app", "Serve the agents of the OpenClaw on this machine."),
    "doctor": ("gateway:doctor", "Check what the gateway needs, and print how to fix problems."),
    "config": ("gateway:config_app", "Check and show the settings; print their schema."),
    "db": ("gateway:db", "Upgrade the schema of the store."),
    "version": ("gateway:version", "Show the version and its environment."),
}
"""Each command: its module and function, and what it does in one line."""

ALIASES = {"tasks": "task", "objectives": "objective"}

_SUMMARY = 14  # where the second column begins
_PAGE = """\
Usage: openclaw-a2a COMMAND [OPTIONS]

Makes agents reachable over the A2A protocol, with tasks that survive.

Commands:
{commands}

Every command has --help; every command that shows something has --json.

First steps:
  openclaw-a2a up              offers OpenClaw's agents, or one that echoes
  openclaw-a2a send "hello"    asks it something, from another terminal

Exit codes: 0 done, 1 the task or the command failed, 2 wrong usage or
settings, 3 the gateway cannot be reached, 130 interrupted with Ctrl-C (the
task goes on).

Environment: OPENCLAW_A2A_CONFIG (settings file), OPENCLAW_A2A_DATA (data
folder), OPENCLAW_A2A_URL and OPENCLAW_A2A_TOKEN (the gateway to talk to),
NO_COLOR, and every setting, for example OPENCLAW_A2A_SERVER__PORT=9901."""


def overview(width: int | None = None) -> str:
    """The page; where its lines are longer than `width`, it is filled again between words."""
    lines = (f"  {name:<{_SUMMARY - 2}}{summary}" for name, (_, summary) in COMMANDS.items())
    page = _PAGE.format(commands="\n".join(lines))
    if width is None or width >= max(map(len, page.splitlines())):
        return page

    from textwrap import wrap

    pieces: list[str] = []
    for paragraph in page.split("\n\n"):
        rows = paragraph.split("\n")
        is_table = any(row.startswith("  ") for row in rows)
        for row in rows if is_table else [" ".join(rows)]:
            below = " " * _SUMMARY if row.startswith("  ") else ""
            pieces += wrap(row, width, subsequent_indent=below)
        pieces.append("")
    return "\n".join(pieces[:-1])
