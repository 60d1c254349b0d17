"""What the page about objectives shows really happens, command by command."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pyjson5
import pytest
from tests.docs.pages import blocks, text_of

PAGE = "docs/howto/run-objectives.md"
COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))
NAME = re.compile(
    r"oca_tool_[\w-]+|(?:obj|plan|task)-[0-9a-f]{16}|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8}\b"
)
VARYING = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d+ (?:s|min)\b|\b\d+ lines\b")
LEFT_OUT = (["up"], ["connect", "openclaw"], ["objectives", "watch"])
DEADLINE_S = 240.0


def steps() -> Iterator[tuple[list[str], str]]:
    """The commands of the page, each with what it prints; nothing where that is not shown."""
    for block in blocks("console", PAGE):
        for step in re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            typed, _, printed = step.partition("\n")
            words = shlex.split(typed)
            if not any(words[1 : 1 + len(one)] == one for one in LEFT_OUT):
                yield words, printed


def same_each_time(text: str) -> list[str]:
    """The lines without names, times and widths."""
    plain = VARYING.sub("<number>", NAME.sub("<name>", text))
    return [line for line in (" ".join(one.split()) for one in plain.splitlines()) if line]


class Reader:
    """Somebody who types what the page says, with the names that they got."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home
        self._names: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def type(self, words: list[str]) -> str:
        """What comes of a command line."""
        own = [self._own(word) for word in words]
        if own[0] == "export":
            name, _, value = own[1].partition("=")
            self._variables[f"${name}"] = value
            return ""
        return self._curl(own) if own[0] == "curl" else self._run(own)

    def learn(self, page: str, real: str) -> None:
        """Know the names of the page by those that stand in their places."""
        for ours, theirs in zip(NAME.findall(page), NAME.findall(real), strict=True):
            self._names[ours] = theirs

    def _own(self, word: str) -> str:
        for name, value in self._variables.items():
            word = word.replace(name, value)
        return NAME.sub(lambda match: self._names.get(match[0], match[0]), word)

    def _run(self, words: list[str]) -> str:
        assert words[0] == "openclaw-a2a"
        return subprocess.run(
            [COMMAND, *words[1:]],
            cwd=self._home,
            env={
                "HOME": str(self._home),
                "NO_COLOR": "1",
                "PATH": f"{Path(COMMAND).parent}:/usr/bin:/bin",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        ).stdout

    def _curl(self, words: list[str]) -> str:
        options = list(pairwise(words))
        headers = [value for option, value in options if option == "-H"]
        given = dict(options)
        [address] = [word for word in words if word.startswith("http")]
        answer = httpx2.request(
            given.get("-X", "POST" if "-d" in given else "GET"),
            address.replace("http://127.0.0.1:9900", self._url),
            content=given.get("-d"),
            headers=dict(header.split(": ", 1) for header in headers),
            timeout=DEADLINE_S,
            trust_env=False,
        )
        assert answer.is_success, answer.text
        assert "error" not in answer.json(), answer.text
        return answer.text


def settings(remote: str) -> Any:
    """Both files of the page as one."""
    config: Any = pyjson5.decode(text_of("json5", PAGE, "helper"))
    more: Any = pyjson5.decode(text_of("json5", PAGE, "planner"))
    config["agents"] |= more["agents"]
    for agent in ("helper", "planner"):
        config["agents"][agent]["command"][0] = sys.executable
    more["outbound"]["targets"][0]["baseUrl"] = remote
    return {**config, "outbound": more["outbound"], "opt": more["opt"]}


@pytest.mark.slow
def test_commands_of_the_page_print_what_it_shows(start_gateway: Any) -> None:
    account = {"defaultAgentId": "main", "agentStyle": "task-generating"}
    remote = start_gateway(
        {
            "agents": {"main": {"adapter": "echo"}},
            "channels": {"a2a": {"accounts": {"default": account}}},
        }
    )
    config = settings(remote.url)
    gateway = start_gateway(config)
    for name, holding in (("helper.py", "A2A_RESUME"), ("planner.py", "Check the facts")):
        (gateway.home / name).write_text(text_of("python", PAGE, holding), "utf-8")
    own = {**config, "server": {"port": gateway.port}}
    (gateway.home / "openclaw-a2a.json5").write_text(json.dumps(own), "utf-8")
    reader = Reader(gateway.url, gateway.home)
    for words, printed in steps():
        wanted, deadline = same_each_time(printed), time.monotonic() + DEADLINE_S
        real = reader.type(words)
        while wanted and same_each_time(real) != wanted and words[2:3] == ["show"]:
            assert time.monotonic() < deadline, f"{printed}\n{real}"
            time.sleep(0.1)  # other processes come to it; nothing here can be awaited
            real = reader.type(words)
        if wanted:
            assert same_each_time(real) == wanted, words
            reader.learn(printed, real)
