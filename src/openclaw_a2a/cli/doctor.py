"""`doctor`: what keeps the gateway from working, and what to do about it."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from openclaw_a2a.cli.config import agent_problems
from openclaw_a2a.cli.failure import DONE, FAILED
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag
from openclaw_a2a.cli.output import show, show_json
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
    """Check what the gateway needs, and tell how to fix what is broken.

    That is Python, settings, store, port and OpenClaw. Nothing is changed. The exit code is 1 when
    something is broken.
    """
    import anyio

    from openclaw_a2a.app.doctor import examine
    from openclaw_a2a.app.finding import Verdict
    from openclaw_a2a.cli.findings import show_findings, summary

    overrides = {"data": str(data.expanduser().absolute())} if data else {}
    examined = check_settings(config, overrides=overrides)
    known = examined.problems
    problems = (*known, *agent_problems(examined.loaded.settings, known))

    async def look():
        return await examine(examined, problems, has_to_ask=ask)

    findings = anyio.run(look)
    is_broken = any(finding.verdict is Verdict.BROKEN for finding in findings)
    if as_json:
        show_json({"ok": not is_broken, "findings": findings})
    else:
        show_findings(findings)
        show()
        show(summary(findings))
    return FAILED if is_broken else DONE
