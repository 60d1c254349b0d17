"""`top`: the dashboard on a terminal: live, with keys, in any size; it leaves the screen clean."""

import json
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from tests.cli.conftest import Terminal, served
from tests.ports import free_port

Json = Any
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
DEADLINE_S = 240.0


class Gateway:
    """The demo, which has approvals, questions, calls, debates and objectives."""

    def __init__(self, address: str, home: Path) -> None:
        self.address, self.home = address, home

    @property
    def options(self) -> tuple[str, ...]:
        return ("--url", self.address, "--data", str(self.home))

    def request(self, path: str, body: Json = None) -> Json:
        token = (self.home / "operator.token").read_text(encoding="ascii").strip()
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(self.address + path, content, headers)
        with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
            return json.loads(answer.read())

    def wait(self, path: str, is_so: Callable[[Json], bool]) -> Json:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(found := self.request(path)):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)  # another process has to do it; nothing here can be awaited
        return found

    def send(self, text: str, account: str) -> str:
        return self.request(f"/dashboard/agents/{account}/send", {"text": text})["id"]

    def state_of(self, task: str) -> str:
        return self.request(f"/dashboard/tasks/{task}")["task"]["state"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    from tests.cli.conftest import COMMAND

    home, port = tmp_path_factory.mktemp("demo"), free_port()
    words = ("demo", "--port", str(port), "--data", str(home), "--pace", "0.01", "--rounds", "1")
    with served([*COMMAND, *words], home, port) as address:
        gateway = Gateway(address, home)
        gateway.wait("/dashboard", lambda now: now["approvals"] and len(now["waiting"]) == 2)
        yield gateway


class Screen:
    """What stands on the screen of a program, from what it has written."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    @property
    def lines(self) -> list[str]:
        rows: dict[int, str] = {}
        for piece in re.split(r"(?=\x1b\[\d+;1H|\x1b\[2J)", self._terminal.seen):
            if piece.startswith("\x1b[2J"):
                rows.clear()
            found = re.match(r"\x1b\[(\d+);1H(.*)", piece, re.DOTALL)
            if found:
                rows[int(found[1])] = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", found[2])
        return [rows.get(number, "") for number in range(1, max(rows, default=0) + 1)]

    def wait(self, *texts: str, without: str = "") -> list[str]:
        def is_so(_: str) -> bool:
            whole = "\n".join(self.lines)
            return all(one in whole for one in texts) and not (without and without in whole)

        self._terminal.read_until(is_so)
        assert is_so(""), self.lines
        return self.lines


def choose(terminal: Terminal, screen: Screen, text: str, row: str) -> None:
    """Write a filter, and wait for a row of what it leaves."""
    terminal.press(f"/\x15{text}\r")  # an earlier filter is taken back first
    screen.wait(f"filter: {text}", row, without="⏎ keep")


@contextmanager
def opened(
    program: Sequence[str], gateway: Gateway, *more: str, columns: int = 80, rows: int = 24
) -> Iterator[tuple[Terminal, Screen]]:
    words = [*program, "top", *gateway.options, *more]
    terminal = Terminal(words, gateway.home, columns=columns, rows=rows)
    try:
        yield terminal, Screen(terminal)
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait(DEADLINE_S)


def test_it_is_live_and_leaves_the_terminal_as_it_was(program, gateway: Gateway) -> None:
    with opened(program, gateway) as (terminal, screen):
        shown = screen.wait("Waiting on you", "7/7 agents", "q quit")
        assert len(shown) == 24
        assert ENTER in terminal.seen
        assert not terminal.is_usual
        gateway.send("paint the fence", "echo")
        screen.wait("paint the fence")
        terminal.press("q")
        terminal.read_until(lambda seen: LEAVE in seen)
        assert terminal.process.wait(DEADLINE_S) == 0
        assert terminal.is_usual


@pytest.mark.parametrize(("how", "code"), [("key", 130), ("signal", 143)])
def test_an_interrupt_gives_the_screen_back(program, gateway: Gateway, how: str, code: int) -> None:
    with opened(program, gateway) as (terminal, screen):
        screen.wait("Waiting on you")
        # The pty of the test is nobody's controlling terminal: Ctrl-C is the signal it stands for.
        terminal.process.send_signal(signal.SIGINT if how == "key" else signal.SIGTERM)
        assert terminal.process.wait(DEADLINE_S) == code
        assert terminal.is_usual
        terminal.finish()
        assert terminal.seen.rindex(LEAVE) > terminal.seen.rindex(ENTER)
        assert "Traceback" not in terminal.seen


def test_views_items_and_the_help_are_reached_by_keys(program, gateway: Gateway) -> None:
    with opened(program, gateway) as (terminal, screen):
        screen.wait("Waiting on you")
        terminal.press("2")
        screen.wait("[all ")
        terminal.press("\x1b[C\x1b[C\x1b[C")  # three tabs to the right
        screen.wait("[completed ")
        terminal.press("3")
        screen.wait("chair → debate", "round-1/critic-1")
        choose(terminal, screen, "debate seen", "chair → debate")
        terminal.press("\r")
        screen.wait("Verdict: resolved", "When do we launch the shop?")
        terminal.press("\x1b")  # back to the list
        screen.wait("chair → debate")
        terminal.press("4")
        screen.wait("A page about tides")
        terminal.press("?")
        screen.wait("any key: back", "allow or deny an approval")
        terminal.press("x")
        screen.wait("A page about tides", without="any key: back")
        terminal.press("\t")  # round to the first view
        screen.wait("Waiting on you")


def test_a_question_is_answered_and_an_approval_given(program, gateway: Gateway) -> None:
    task = gateway.send("Where is my parcel?", "support")
    deploy = gateway.send("Deploy the blog.", "deployer")
    gateway.wait(f"/dashboard/tasks/{task}", lambda page: page["canAnswer"])
    gateway.wait(f"/dashboard/tasks/{deploy}", lambda page: page["approval"])
    with opened(program, gateway, "--view", "tasks") as (terminal, screen):
        screen.wait("[all ")
        choose(terminal, screen, "parcel?", "Where is my parcel?")
        terminal.press("a")
        screen.wait("Which order do you mean", "answer: ")
        terminal.press("10x\x7f42")
        screen.wait("answer: 1042")
        terminal.press("\r")
        screen.wait("The answer was sent.")
        gateway.wait(f"/dashboard/tasks/{task}", lambda page: page["canRetry"])
        answer = gateway.request(f"/dashboard/tasks/{task}")["conversation"][-1]
        assert answer["parts"][0]["text"] == "Order 1042 leaves tomorrow."

        choose(terminal, screen, "Deploy the blog", "Deploy the blog.")
        terminal.press("\r")
        screen.wait("Waits for your decision")
        terminal.press("a")
        screen.wait("Allow it?", "kubectl rollout restart")
        terminal.press("y")
        screen.wait("It was allowed.")
        screen.wait("Deployed.")


def test_a_step_of_an_objective_is_answered(program, gateway: Gateway) -> None:
    made = gateway.request("/operator/objectives", {"name": "Find the parcel"})
    root = f"/operator/objectives/{made['id']}"
    step = {"name": "Ask which one", "metadata": {"agent": "support"}}
    gateway.request(f"{root}/plans", {"plans": [{"name": "One step", "tasks": [step]}]})
    gateway.request(f"{root}/run", {})
    page = f"/dashboard/objectives/{made['id']}"
    gateway.wait(page, lambda one: one["waiting"])
    with opened(program, gateway, "--view", "objectives") as (terminal, screen):
        screen.wait("Find the parcel")
        choose(terminal, screen, "Find the parcel", "Find the parcel")
        terminal.press("\r")
        screen.wait("Ask which one")
        terminal.press("a")
        screen.wait("answer: ", "Which order do you mean")
        terminal.press("1041\r")
        screen.wait("The answer was sent.")
        screen.wait("completed")


def test_a_task_is_canceled_after_a_question(program, gateway: Gateway) -> None:
    task = gateway.send("Deploy the wiki.", "deployer")
    gateway.wait(f"/dashboard/tasks/{task}", lambda page: page["approval"])
    with opened(program, gateway, "--view", "tasks") as (terminal, screen):
        screen.wait("[all ")
        choose(terminal, screen, "Deploy the wiki", "Deploy the wiki.")
        terminal.press("c")
        screen.wait("Cancel it?")
        terminal.press("n")
        screen.wait("filter: Deploy", without="Cancel it?")
        assert gateway.state_of(task) == "working"
        terminal.press("c")
        screen.wait("Cancel it?")
        terminal.press("y")
        screen.wait("The task was canceled.")
        assert gateway.state_of(task) == "canceled"
        screen.wait("- canceled")  # the list of a filter is some seconds old
        terminal.press("c")
        screen.wait("It has ended.")


def test_it_fits_every_size_and_wide_characters(program, gateway: Gateway) -> None:
    gateway.send("日本語のテスト 🎉 " + "你好世界" * 30 + "\u202e\x1b[31m", "echo")
    with opened(program, gateway, "--view", "tasks", columns=60, rows=16) as (terminal, screen):
        shown = screen.wait("日本語", "q quit")
        assert len(shown) == 16
        assert max(map(cell_len, shown)) <= 60
        assert "\u202e" not in terminal.seen
        choose(terminal, screen, "日本語", "日本語のテスト")
        terminal.press("\r")
        shown = screen.wait("你好世界", "Esc back")
        assert max(map(cell_len, shown)) <= 60
        terminal.resize(columns=100, rows=30)
        terminal.read_until(lambda _: len(screen.lines) == 30)
        shown = screen.lines
        assert 60 < max(map(cell_len, shown)) <= 100
        terminal.resize(columns=20, rows=5)
        terminal.read_until(lambda _: len(screen.lines) == 5)
        assert max(map(cell_len, screen.lines)) <= 20


def test_only_the_page_on_the_screen_is_followed(program, gateway: Gateway) -> None:
    # The streams of earlier tests end when the gateway has seen that those programs are gone.
    gateway.wait("/dashboard", lambda now: now["health"]["streams"] == 0)
    with opened(program, gateway) as (terminal, screen):
        screen.wait("Waiting on you")
        gateway.wait("/dashboard", lambda now: now["health"]["streams"] == 1)
        for key, text in (("2", "[all "), ("3", "round-1"), ("4", "tides")):
            terminal.press(key)
            screen.wait(text)
        gateway.wait("/dashboard", lambda now: now["health"]["streams"] == 1)
        terminal.press("q")
        terminal.process.wait(DEADLINE_S)
    gateway.wait("/dashboard", lambda now: now["health"]["streams"] == 0)


def test_without_a_terminal_it_prints_once_and_says_what_a_terminal_is_for(
    command, gateway: Gateway
) -> None:
    done = command("top", *gateway.options)
    assert done.code == 0
    assert "Waiting on you" in done.out
    assert "\x1b" not in done.out
    assert "on a terminal it is live" in done.err
    calls = command("top", "--view", "calls", *gateway.options)
    assert "chair → debate" in calls.out


@pytest.mark.parametrize(
    ("view", "member"),
    [("now", "health"), ("tasks", "tasks"), ("calls", "calls"), ("objectives", "columns")],
)
def test_json_is_the_page_of_the_dashboard(
    command, gateway: Gateway, view: str, member: str
) -> None:
    done = command("top", "--view", view, "--json", *gateway.options)
    page = "/dashboard" if view == "now" else f"/dashboard/{view}"
    assert done.json.keys() == gateway.request(page).keys()
    assert done.json[member]
    assert done.err == ""


def test_a_gateway_that_is_not_there_is_reported(command, tmp_path: Path, gateway: Gateway) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    done = command("top", "--url", address, "--data", str(gateway.home))
    assert done.code == 3
    assert "nothing answers" in done.err


def test_a_gateway_with_another_token_is_reported_with_the_flag_that_helps(
    command, program, tmp_path: Path, gateway: Gateway
) -> None:
    (tmp_path / "operator.token").write_text(f"{'a' * 43}\n", encoding="ascii")
    words = ("top", "--url", gateway.address, "--data", str(tmp_path))
    done = command(*words)
    assert done.code == 2
    assert "another operator's token" in done.err
    assert "--data" in done.err
    assert "--token" not in done.err  # which `top` does not have
    terminal = Terminal([*program, *words], tmp_path, columns=80, rows=24)
    terminal.read_until(lambda seen: "another operator's token" in seen)
    assert terminal.process.wait(DEADLINE_S) == 2


def test_a_gateway_without_a_dashboard_says_which_setting(command, program, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "gateway.json5"
    config.write_text("{ dashboard: { enabled: false } }", encoding="utf-8")
    place = ("--port", str(port), "--data", str(tmp_path), "--config", str(config))
    with served([*program, "up", *place], tmp_path, port) as address:
        done = command("top", "--url", address, "--data", str(tmp_path))
    assert done.code == 2
    assert "dashboard.enabled" in done.err


def test_a_connection_that_is_lost_is_said_and_found_again(program, tmp_path: Path) -> None:
    port = free_port()
    words = [*program, "up", "--port", str(port), "--data", str(tmp_path)]
    with served(words, tmp_path, port) as address:
        gateway = Gateway(address, tmp_path)
        terminal = Terminal([*program, "top", *gateway.options], tmp_path, columns=80, rows=24)
        screen = Screen(terminal)
        screen.wait("Waiting on you", "127.0.0.1")
    screen.wait("no connection")
    with served(words, tmp_path, port):
        screen.wait("Waiting on you", without="no connection")
        terminal.press("q")
        assert terminal.process.wait(DEADLINE_S) == 0


def test_the_demo_says_how_it_is_watched_in_a_terminal(gateway: Gateway) -> None:
    said = (gateway.home / "log").read_text(encoding="utf-8")
    assert f"openclaw-a2a top --data {gateway.home}\n" in said


def test_the_demo_says_where_it_is_seen_when_its_output_is_no_terminal(gateway: Gateway) -> None:
    said = (gateway.home / "log").read_text(encoding="utf-8")
    link = re.search(rf"{gateway.address}/dashboard/login\?code=\S+", said)
    assert link is not None
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link[0], timeout=DEADLINE_S) as page:
        assert page.geturl() == f"{gateway.address}/dashboard"
