"""`doctor`: what keeps the gateway from working, and what to do about it."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from openclaw_a2a.cli.commands.config import agent_problems
from openclaw_a2a.cli.errors import DONE, FAILED
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag
from openclaw_a2a.cli.render.terminal import print_data, print_json
from openclaw_a2a.settings import check_settings


def doctor(
    *,
    ask: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Have each OpenClaw agent answer a short turn, which costs what a turn costs.",
        ),
    ] = False,
    config: ConfigFlag = None,
    data: Annotated[Path | None, Parameter(help="The data folder.")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Check what the gateway needs, and print how to fix problems.

    That is Python, settings, store, port and OpenClaw. Nothing is changed. The exit code is 1 when
    something is broken.
    """
    import anyio

    from openclaw_a2a.cli.diagnostics.checks import CheckStatus, run_checks
    from openclaw_a2a.cli.render.checks import print_checks, summarize_checks

    overrides = {"data": str(data.expanduser().absolute())} if data else {}
    examined = check_settings(config, overrides=overrides)
    known = examined.problems
    problems = (*known, *agent_problems(examined.loaded.settings, known))

    async def look():
        return await run_checks(examined, problems, has_to_ask=ask)

    findings = anyio.run(look)
    is_broken = any(finding.status is CheckStatus.BROKEN for finding in findings)
    if as_json:
        print_json({"ok": not is_broken, "findings": findings})
    else:
        print_checks(findings)
        print_data()
        print_data(summarize_checks(findings))
    return FAILED if is_broken else DONE
