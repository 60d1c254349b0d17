"""The page docs/howto/openclaw-by-its-command.md is up to date."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pyjson5

from openclaw_a2a.agents import build_agent
from openclaw_a2a.agents.openclaw_cli import OpenClawCliAgent, OpenClawCliOptions

PAGE = (Path(__file__).parents[3] / "docs/howto/openclaw-by-its-command.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_option_is_on_the_page_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    fields = msgspec.structs.fields(OpenClawCliOptions)
    assert [name for name, _ in rows] == [field.encode_name for field in fields]
    defaults = {field.encode_name: field.default for field in fields}
    for name, shown in rows:
        default = defaults[name]
        if isinstance(default, str) and default:
            assert shown == f'`"{default}"`'
        elif isinstance(default, int | float):
            assert shown == f"{default:g}" or int(shown) == default


def test_agent_on_the_page_can_be_built():
    for source in blocks("json5"):
        for agent in pyjson5.decode(source)["agents"].values():
            adapter = agent.pop("adapter")
            assert isinstance(build_agent(adapter, agent, environment=None), OpenClawCliAgent)


def test_code_on_the_page_runs(openclaw, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(blocks("python")[0], encoding="utf-8")
    path = f"{openclaw.program.parent}{os.pathsep}{os.environ['PATH']}"
    printed = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={**os.environ, **openclaw.variables, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout
    assert printed == "echo: Say hello.\n"
