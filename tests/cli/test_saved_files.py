"""`--save`: the files that agents send, in a folder of the caller."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import served
from tests.ports import free_port

from openclaw_a2a.cli.commands.agent import SavedFiles
from openclaw_a2a.model.message import Part

pytestmark = pytest.mark.slow

AGENT = """
import sys
from openclaw_a2a import Part, serve_agent

CHART = Part.of_bytes(b"a,b\\n1,2\\n", media_type="text/csv", filename="chart.csv")

async def answer(text: str):
    yield "Here you are. "
    yield CHART
    yield Part.of_bytes(b"second", media_type="text/csv", filename="../../chart.csv")
    yield Part.of_bytes(b"picture", media_type="image/png")
    yield Part.of_url("https://example.com/far.pdf", filename="far.pdf")

serve_agent(answer, port=int(sys.argv[1]), name="Charts")
"""
FILES = {"chart.csv": b"a,b\n1,2\n", "chart-2.csv": b"second", "file.png": b"picture"}


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an agent that answers with files."""
    import sys

    home, port = tmp_path_factory.mktemp("charts"), free_port()
    (home / "agent.py").write_text(AGENT, encoding="utf-8")
    with served([sys.executable, "agent.py", str(port)], home, port) as address:
        yield address


def saved(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


@pytest.mark.parametrize("flags", [(), ("--no-stream",), ("--json",)])
def test_files_of_an_answer_are_saved_below_the_folder(command, charts, tmp_path, flags) -> None:
    done = command("send", "draw", "--url", charts, "--save", "charts/new", *flags)
    assert done.code == 0
    assert saved(tmp_path / "charts" / "new") == FILES
    assert "saved charts/new/chart.csv (8 bytes)" in done.err
    assert "not saved: https://example.com/far.pdf" in done.err
    if flags == ("--json",):
        assert all(json.loads(line) for line in done.out.splitlines())
    # A second time nothing is overwritten.
    command("send", "draw", "--url", charts, "--save", "charts/new", *flags)
    assert len(saved(tmp_path / "charts" / "new")) == 2 * len(FILES)


def test_files_of_a_task_are_saved_when_it_is_shown(command, charts, tmp_path) -> None:
    (sent,) = command("send", "draw", "--no-stream", "--json", "--url", charts).lines
    shown = command("tasks", "show", sent["task"]["id"], "--url", charts, "--save", "files")
    assert (shown.code, saved(tmp_path / "files")) == (0, FILES)
    assert "chart.csv" in shown.out


@pytest.mark.parametrize("flags", [(), ("--no-stream",)])
def test_files_outside_the_usual_output_modes_of_an_account_are_saved(
    start_gateway, command, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "charts.py").write_text(AGENT.partition("serve_agent(answer")[0], encoding="utf-8")
    agent = {"adapter": "callable", "function": "charts:answer"}
    gateway = start_gateway({"agents": {"main": agent}}, env={"PYTHONPATH": str(tmp_path)})
    done = command("send", "draw", "--url", gateway.url, "--save", "files", *flags)
    assert (done.code, saved(tmp_path / "files")) == (0, FILES)


def test_folder_that_cannot_be_made_is_reported_before_anything_is_sent(
    command, charts, tmp_path
) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    before = command("tasks", "list", "--json", "--url", charts).json["totalSize"]
    done = command("send", "draw", "--url", charts, "--save", "taken")
    assert done.code == 2
    assert "taken" in done.err
    assert command("tasks", "list", "--json", "--url", charts).json["totalSize"] == before


def test_answer_without_files_says_so(echo, tmp_path) -> None:
    done = echo("send", "hello", "--save", "files")
    assert done.out == "echo: hello\n"
    assert "no files" in done.err


@given(st.lists(st.text(max_size=300), min_size=1, max_size=5))
def test_no_name_of_a_peer_leads_out_of_the_folder_or_overwrites(names: list[str]) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place) / "in" / "here"
        files = SavedFiles(folder)
        for number, name in enumerate(names):
            part = Part.of_bytes(b"%d" % number, media_type="text/plain", filename=name)
            files.add_parts(f"artifact-{number}", (part,))
        files.write()
        assert sorted(saved(folder).values()) == sorted(b"%d" % n for n in range(len(names)))
        everything = [one for one in Path(place).rglob("*") if one.is_file()]
        assert len(everything) == len(names)
        assert {one.parent for one in everything} == {folder}


def test_larger_message_than_allowed_names_the_setting(echo, tmp_path) -> None:
    (tmp_path / "big.txt").write_bytes(b"x" * 1_100_000)
    done = echo("send", "--file", "big.txt", "look")
    assert done.code != 0
    assert "channels.a2a.accounts.default.maxBodyBytes" in done.err
