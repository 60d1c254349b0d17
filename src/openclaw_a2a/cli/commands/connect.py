"""`connect`: offer the agents of somebody else's gateway here; there is one kind, OpenClaw's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.commands.config import agent_problems
from openclaw_a2a.cli.errors import DONE, FAILED
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag
from openclaw_a2a.cli.render.terminal import print_data, print_json
from openclaw_a2a.settings import CheckedSettings, check_settings

if TYPE_CHECKING:
    from openclaw_a2a.cli.diagnostics.checks import CheckResult
    from openclaw_a2a.cli.diagnostics.openclaw_setup import SetupPlan, SetupStep

app = App(name="connect", help="Serve the agents of the OpenClaw on this machine.")


@app.command
def openclaw(
    *,
    dry_run: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Show what there is to do, do nothing."),
    ] = False,
    config: ConfigFlag = None,
    as_json: JsonFlag = False,
) -> int:
    """Show the OpenClaw of this machine, and do what is needed to offer its agents.

    The settings file gets a section `openclaw`; what is written in it stays as it is. OpenClaw's
    own config is changed by its own commands only: when it lacks a token, and when its agents are
    to get the tools that are offered here.
    """
    import anyio

    from openclaw_a2a.cli.diagnostics.checks import check_openclaw
    from openclaw_a2a.cli.diagnostics.openclaw_setup import plan_setup, run_setup

    examined = check_settings(config)
    _refuse_problems(examined)

    async def go() -> "tuple[list[CheckResult], SetupPlan, list[str]]":
        findings = await check_openclaw(examined, has_to_ask=False)
        plan = plan_setup(examined, findings, path=_absolute(config))
        done = [] if dry_run else await run_setup(plan)
        return findings, plan, done

    findings, plan, done = anyio.run(go)
    left = [step for step in plan.steps if not step.is_done and (dry_run or not step.is_ours)]
    if as_json:
        steps = {"steps": plan.steps, "done": done, "dryRun": dry_run}
        print_json({"ok": not left, "findings": findings, **steps})
    else:
        _show(findings, plan, done)
        print_data(_end(left, dry_run=dry_run))
    return FAILED if plan.is_blocked else DONE


def _refuse_problems(examined: CheckedSettings) -> None:
    problems = (*examined.problems, *agent_problems(examined.loaded.settings, examined.problems))
    if problems:
        raise examined.loaded.invalid(problems)


def _absolute(path: Path | None) -> Path | None:
    return path.expanduser().absolute() if path else None


def _show(findings: "list[CheckResult]", plan: "SetupPlan", done: list[str]) -> None:
    from openclaw_a2a.cli.render.checks import print_checks

    is_new = [one for one in plan.steps if not one.is_done and not (done and one.is_ours)]
    print_checks([*([] if plan.is_blocked else findings), *(_as_finding(one) for one in is_new)])
    print_data()
    for sentence in done:
        print_data(sentence)


def _as_finding(step: "SetupStep") -> "CheckResult":
    from openclaw_a2a.cli.diagnostics.checks import CheckResult, CheckStatus

    return CheckResult("to do", step.name, CheckStatus.NOTE, step.what, "\n".join(step.commands))


def _end(left: "list[SetupStep]", *, dry_run: bool) -> str:
    if not left:
        return "Start the gateway: openclaw-a2a up"
    if dry_run and any(step.is_ours for step in left):
        return "Nothing was changed. To do it: openclaw-a2a connect openclaw"
    return "Then start the gateway: openclaw-a2a up"
