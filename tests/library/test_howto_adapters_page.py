"""The programs on docs/howto/make-any-agent-an-a2a-server.md work as described."""

import re
from pathlib import Path

import pytest

from openclaw_a2a import AgentAdapter, to_a2a

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "make-any-agent-an-a2a-server.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def defined(holding):
    """The names that a program of the page defines."""
    (program,) = [one for one in PROGRAMS if holding in one]
    names = {"__name__": "page"}
    exec(compile(program, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.split("(")[0][-20:])
@pytest.mark.usefixtures("own_adapters")
def test_program_on_the_page_runs(program):
    exec(compile(program, str(PAGE), "exec"), {"__name__": "page"})


async def test_shouter_shouts(serving):
    async with serving(defined("Shouter")["Shouter"]()) as client:
        assert (await client.send("hi"))["status"]["message"]["parts"] == [{"text": "HI"}]


async def test_chart_streams_its_file(serving):
    chart = defined("class Chart")["Chart"]()
    async with serving(chart) as client:
        task = await client.send("sales")
        card = (await client.http.get("/.well-known/agent.json")).json()
    assert task["artifacts"][0]["parts"][1]["filename"] == "chart.csv"
    assert (card["name"], card["skills"][0]["name"]) == ("Chart", "Chart")


def test_application_of_the_page_is_one():
    app = defined("Reverser")["app"]
    assert type(app) is type(to_a2a(str.upper))
    assert app.served.card.url == "https://agents.example.com/"


def test_program_of_the_page_goes_on_with_sessions():
    coder = defined("class Coder")["coder"]
    assert coder.build_command("hi", "c") == (["coder", "--json", "hi"], False)
    coder.sessions = type(coder.sessions)("")
    coder.sessions.keep("c", "s-1")
    assert coder.build_command("hi", "c") == (["coder", "--json", "--resume", "s-1", "hi"], True)
    assert coder.parse_output('{"answer": "a", "session": "s"}', "c") == ("a", "s")


@pytest.mark.usefixtures("own_adapters")
async def test_greeter_of_the_page_greets():
    greeter = defined("class Greeter")["greeter"]
    assert isinstance(greeter, AgentAdapter)
    assert await greeter.invoke("you") == "good day, you"
