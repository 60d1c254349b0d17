"""The page docs/howto/serve-a-program.md is up to date."""

import json
import re
import sys
from pathlib import Path

import msgspec
import pyjson5
import pytest

from openclaw_a2a.agents import build_agent
from openclaw_a2a.agents.process.command_agent import (
    CommandAgent,
    CommandOptions,
    OutputLine,
    parse_line,
)
from openclaw_a2a.model.agent_event import InputRequired, Note, Reply, TextDelta

PAGE = (Path(__file__).parents[3] / "docs/howto/serve-a-program.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def rows(head):
    """The first column of the table whose first heading is `head`."""
    table = PAGE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0]
    return [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]


def names_of(kind):
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def test_every_option_is_on_the_page():
    assert rows("option") == names_of(CommandOptions)


def test_every_kind_of_line_is_on_the_page():
    lines = [json.loads(line) for line in rows("line")]
    words = {word for line in lines if isinstance(line, dict) for word in line}
    assert words == set(names_of(OutputLine))


@pytest.mark.parametrize("line", rows("line"))
def test_lines_on_the_page_can_be_read(line):
    parse_line(line)


@pytest.mark.parametrize("source", blocks("json5"))
def test_agents_on_the_page_can_be_built(source):
    for agent in pyjson5.decode(source)["agents"].values():
        adapter = agent.pop("adapter")
        assert isinstance(build_agent(adapter, agent, environment=None), CommandAgent)


async def test_program_on_the_page_asks_before_it_acts(answer, make_turn, tmp_path):
    script = tmp_path / "careful.py"
    script.write_text(blocks("python")[0], encoding="utf-8")
    agent = CommandAgent(CommandOptions((sys.executable, str(script)), output="jsonl"))
    pause = InputRequired("Really delete it?", {"wanted": "delete it"})
    assert await answer(agent, make_turn("delete it")) == [Note("Looking around"), pause]
    confirmed = await answer(agent, make_turn("yes", resume=pause.resume))
    assert confirmed == [TextDelta("Done: "), TextDelta("delete it")]
    refused = await answer(agent, make_turn("no", resume=pause.resume))
    assert refused == [Reply.of_text("Nothing was done.")]
