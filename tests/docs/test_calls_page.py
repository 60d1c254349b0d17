"""What the page about calls between agents shows really happens, command by command."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pyjson5
import pytest
from tests.docs.pages import blocks, text_of

PAGE = "docs/howto/let-agents-call-each-other.md"
COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))
NAME = re.compile(r"oca_tool_[\w-]+|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8}\b")
CLOCK = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z)?|\+\d+\.\d\d s|\b\d+ (s|min)\b")
DEADLINE_S = 240.0


def shown() -> Iterator[tuple[list[str], str]]:
    """The commands of the page that show what they print, each with that."""
    for block in blocks("console", PAGE):
        steps = re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
        for step in steps:
            typed, _, printed = step.partition("\n")
            if printed.strip() or typed.startswith("export"):
                yield shlex.split(typed), printed


def same_each_time(text: str) -> list[str]:
    """The lines without names, times and widths, and without the times that are too close."""
    plain = CLOCK.sub("<time>", NAME.sub("<name>", text))
    lines = [" ".join(line.split()) for line in plain.splitlines()]
    return [line for line in lines if line and "· pending ·" not in line]


class Reader:
    """Somebody who types what the page says, with the names that they got."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self._home = home
        self._names: dict[str, str] = {}

    def type(self, words: list[str]) -> str:
        """What comes of a command line."""
        own = [self._own(word) for word in words]
        if own[0] == "curl":
            return self._curl(own)
        assert own[0] == "openclaw-a2a"
        return subprocess.run(
            [COMMAND, *own[1:]],
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

    def learn(self, page: str, real: str) -> None:
        """Know the names of the page by those that stand in their places."""
        pairs = list(zip(NAME.findall(page), NAME.findall(real), strict=True))
        self._names.update(pairs)
        self._names.update((ours[:8], theirs[:8]) for ours, theirs in pairs)

    def _own(self, word: str) -> str:
        return NAME.sub(lambda match: self._names.get(match[0], match[0]), word)

    def _curl(self, words: list[str]) -> str:
        [address] = [word for word in words if word.startswith("http")]
        headers = [words[place + 1] for place, word in enumerate(words) if word == "-H"]
        answer = httpx2.post(
            address.replace("http://127.0.0.1:9900", self.url),
            content=words[words.index("-d") + 1],
            headers=dict(header.split(": ", 1) for header in headers),
            timeout=DEADLINE_S,
            trust_env=False,
        )
        return answer.text


@pytest.mark.slow
def test_commands_of_the_page_print_what_it_shows(start_gateway: Any) -> None:
    config: Any = pyjson5.decode(text_of("json5", PAGE, "librarian"))
    program = [sys.executable, "colleague.py"]
    config["agents"]["librarian"]["command"] = program
    debates: Any = pyjson5.decode(text_of("json5", PAGE, "sceptic"))
    for name, agent in debates["agents"].items():
        config["agents"][name] = {**agent, "command": program}
    config["channels"] = debates["channels"]
    gateway = start_gateway(config)
    (gateway.home / "colleague.py").write_text(text_of("python", PAGE, "ANSWERS"), "utf-8")
    settings = {**config, "server": {"port": gateway.port}}
    (gateway.home / "openclaw-a2a.json5").write_text(json.dumps(settings), "utf-8")
    reader, token = Reader(gateway.url, gateway.home), ""
    for words, printed in shown():
        if words[0] == "export":
            token = words[1].removeprefix("TOKEN=")
            continue
        typed = [word.replace("$TOKEN", token) for word in words]
        wanted, deadline = same_each_time(printed), time.monotonic() + DEADLINE_S
        real = reader.type(typed)
        while same_each_time(real) != wanted and is_question(words):
            assert time.monotonic() < deadline, real
            time.sleep(0.1)  # another process comes to it; nothing here can be awaited
            real = reader.type(typed)
        assert same_each_time(real) == wanted, words
        if "watch" not in words:
            reader.learn(printed, real)


def is_question(words: list[str]) -> bool:
    """True for what may be asked again until it is as the page says."""
    return words[1:2] == ["calls"] or "agent_poll" in words[1]


def test_page_tells_models_of_messages_as_they_are() -> None:
    for block in blocks("json", PAGE):
        known = json.loads(block.text)
        if known.get("kind") == "skill_response":
            assert list(known)[:4] == ["kind", "correlationId", "taskId", "status"]
            assert list(known)[4:] == ["output", "confidence", "assumptions", "caveats"]
