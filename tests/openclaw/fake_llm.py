"""A deterministic stand-in for a language model, for driving a real OpenClaw.

Standard library only. It speaks the chat completions format, streaming or not. What it answers
depends only on the conversation in the request. When the last message is a tool's result:
`The tool said: <text>`. Otherwise the last user message decides; a keyword must begin a word:

    fail  fail:429       that HTTP status (500 without a number), at every request
    fail:503*2           so for the first two requests of the session, then go on; OpenClaw tries
                         again with another text, and this keyword works in the text before too
    sleep:SECONDS        wait before the first byte, then go on
    hold:NAME            wait before the first byte until NAME is released, then go on
    long:N  long:N@MS    N words "w1 w2 ...", MS milliseconds apart (50 without a number)
    halt:NAME            of the answer's words give the first half, then wait until NAME is released
    say:[TEXT]           text in front of the tool call of the same message
    tool:NAME {json}     call that tool. NAME may be the tail of an offered tool's name. Several in
                         one message are called one per request, in their order
    history              list every user message of the request
    tools                list the names of the offered tools
    parrot:TEXT          answer with TEXT exactly, to the end of the message
    empty                answer with nothing
    hang                 never answer
    after:NAME           when a tool has answered, wait until NAME is released, then go on
    anything else        `echo: <last user message>`

An agent that another one calls gets JSON, `{"kind": "skill_invocation", "skill": .., "input": ..}`.
There the keywords are those of the input's `do`, else of its `topic`; where none of them says what
to answer, it is `{"output": {"skill": .., "flaws": [..]}, "confidence": 0.9}`.

Beside it, for tests:

    GET  /stats                      {"requests", "active", "max_active", "client_gone"}
    GET  /requests?marker=M          what was asked, oldest first: every request whose last user
         [&outcome=O&count=N&wait=S] message (or session key) contains M, and how it ended
                                     ("active", "done", "client-gone"). With `count` it waits up to
                                     S seconds until there are at least N of them
    POST /release/NAME               let go whoever waits for NAME, now and later
"""

import argparse
import json
import re
import select
import socket
import threading
import time
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = Any

STAMP = re.compile(r"^\s*\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d[^\]]*\] ?")
INTERNAL = re.compile(
    r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>", re.DOTALL
)
QUEUED = re.compile(
    r"^\[Queued user message from a previous active turn[^\]]*\]\n.*?\n\n", re.DOTALL
)
RUNTIME = re.compile(r"\n\nRuntime: [^\n]*agent=[^\n]*\s*$")
SESSION = re.compile(r"\n\nRuntime: [^\n]*\bsession=([^\s|]+)")
SENDER = re.compile(
    r"\n\n--- Notes from the gateway about the peer's message ---\n"
    r"Sender known to the gateway: [^\n]*\n--- End of notes ---"
)
TOOL = re.compile(r"(?<![\w/])tool:([\w.\-]+)\s*")
PIECES = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")


@dataclass
class Plan:
    """What to do for one request."""

    status: int = 200
    sleep_s: float = 0.0
    hold: str = ""
    halt: str = ""
    text: str = ""
    pace_s: float = 0.0
    call: tuple[str, Json] | None = None
    hangs: bool = False


@dataclass
class Asked:
    """One request as tests see it."""

    number: int
    session: str
    last_user: str
    messages: list[Json]
    offered: list[str]
    images: list[str]
    outcome: str = "active"
    status: int = 200
    text: str = ""
    call: tuple[str, Json] | None = None
    started: float = field(default_factory=time.time)
    seconds: float = 0.0


def text_of(content: Json) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return str(content.get("text") or "")
    return "".join(text_of(part) for part in content or [])


def images_of(content: Json) -> list[str]:
    """The addresses of the images in a message's content, in their order."""
    parts: list[Json] = content if isinstance(content, list) else []
    return [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]


def typed(text: str) -> str:
    """What a person typed, without what OpenClaw and our gateway wrap around it.

    A message of a turn that was cut short comes again in front of the next one, and its keywords
    must not work twice.
    """
    text = SENDER.sub("", STAMP.sub("", INTERNAL.sub("", text)))
    return RUNTIME.sub("", QUEUED.sub("", text)).strip("\n")


def read(body: Json) -> Asked:
    """The conversation of a request."""
    messages: list[Json] = []
    for one in body.get("messages") or []:
        text = text_of(one.get("content"))
        shown = typed(text) if one["role"] == "user" else text
        if shown.strip() or not text.strip():
            calls = len(one.get("tool_calls") or [])
            images = images_of(one.get("content"))
            messages.append(
                {"role": one["role"], "text": shown, "raw": text, "calls": calls, "images": images}
            )
    users = [one for one in messages if one["role"] == "user"]
    last: Json = users[-1] if users else {"text": "", "raw": "", "images": []}
    found = [match for one in reversed(users) if (match := SESSION.search(one["raw"]))]
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    return Asked(
        number=0,
        session=found[0].group(1) if found else "",
        last_user=last["text"],
        messages=messages,
        offered=offered,
        images=last["images"],
    )


def tool_calls(text: str) -> list[tuple[str, Json]]:
    """The tools that a text wants called; what is in the arguments is for somebody else."""
    found: list[tuple[str, Json]] = []
    place = 0
    while match := TOOL.search(text, place):
        arguments, place = {}, match.end()
        if text.startswith("{", place):
            arguments, place = json.JSONDecoder().raw_decode(text, place)
        found.append((match.group(1), arguments))
    return found


def own_words(text: str) -> str:
    """A text without the arguments of tools, whose keywords are for somebody else."""
    words, place = "", 0
    while match := TOOL.search(text, place):
        words += text[place : match.end()]
        place = match.end()
        if text.startswith("{", place):
            _, place = json.JSONDecoder().raw_decode(text, place)
    return words + text[place:]


def invocation(text: str) -> Json | None:
    """What an agent is called for; None when a text is no call."""
    try:
        asked: Json = json.loads(text)
    except ValueError:
        return None
    is_call = isinstance(asked, dict) and asked.get("kind") == "skill_invocation"
    return asked if is_call and "skill" in asked and "input" in asked else None


def wanted_of(text: str) -> str:
    """Where the keywords are: in what an agent is called with, else in the text itself."""
    called = invocation(text)
    return text if called is None else called["input"].get("do") or called["input"].get("topic", "")


def skill_answer(called: Json) -> str:
    """What an agent answers whom nobody told what to."""
    flaws = [f"seen by {called['skill']}"]
    return json.dumps({"output": {"skill": called["skill"], "flaws": flaws}, "confidence": 0.9})


def full_name(name: str, offered: list[str]) -> str:
    """The offered tool that ends with this name, or the name itself."""
    return next((one for one in offered if one == name or one.endswith(f"_{name}")), name)


def keyword(text: str, pattern: str) -> re.Match[str] | None:
    """A keyword that begins a word."""
    return re.search(r"(?<![\w:/.-])" + pattern, text)


def decide(asked: Asked, *, failures: int = 0) -> Plan:
    """The whole behaviour; `failures` counts the requests of this session that failed before."""
    text, plan = wanted_of(asked.last_user), Plan()
    spoken = [index for index, one in enumerate(asked.messages) if one["role"] == "user"]
    tail = asked.messages[spoken[-1] + 1 :] if spoken else []
    raw = asked.messages[spoken[-1]]["raw"] if spoken else ""
    done = sum(one["calls"] for one in tail if one["role"] == "assistant")
    wanted = tool_calls(text)
    if done < len(wanted):
        plan.call = (full_name(wanted[done][0], asked.offered), wanted[done][1])
        plan.text = said.group(1) if (said := keyword(text, r"say:\[([^\]]*)\]")) else ""
    elif tail and tail[-1]["role"] == "tool":
        plan.text = "The tool said: " + tail[-1]["text"]
    if not tail:
        _add_waits(plan, own_words(text))
    elif tail[-1]["role"] == "tool" and (found := keyword(own_words(text), r"after:([\w-]+)")):
        plan.hold = found.group(1)
    failure = keyword(raw, r"fail(?::(\d{3}))?(?:\*(\d+))?(?!\w)")
    if failure and (failure.group(2) is None or failures < int(failure.group(2))):
        plan.status = int(failure.group(1) or 500)
    if plan.call is None and not plan.text:
        _add_text(plan, asked)
    return plan


def _add_waits(plan: Plan, text: str) -> None:
    if found := keyword(text, r"sleep:(\d+(?:\.\d+)?)"):
        plan.sleep_s = float(found.group(1))
    if found := keyword(text, r"hold:([\w-]+)"):
        plan.hold = found.group(1)
    if found := keyword(text, r"halt:([\w-]+)"):
        plan.halt = found.group(1)


def _add_text(plan: Plan, asked: Asked) -> None:
    text, called = wanted_of(asked.last_user), invocation(asked.last_user)
    if keyword(text, r"hang(?!\w)"):
        plan.hangs = True
    elif found := keyword(text, r"parrot:"):
        plan.text = text[found.end() :]
    elif found := keyword(text, r"long:(\d+)(?:@(\d+))?"):
        plan.text = " ".join(f"w{number + 1}" for number in range(int(found.group(1))))
        plan.pace_s = int(found.group(2) or 50) / 1000
    elif keyword(text, r"history(?!\w)"):
        users = [one["text"] for one in asked.messages if one["role"] == "user"]
        plan.text = "history: " + json.dumps(users)
    elif keyword(text, r"tools(?!\w)"):
        plan.text = "tools: " + ", ".join(sorted(asked.offered))
    elif not keyword(text, r"empty(?!\w)"):
        plan.text = "echo: " + text if called is None else skill_answer(called)


class Ledger:
    """What was asked so far, for whoever waits for something to be asked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[Asked] = []
        self._released: set[str] = set()
        self._counts = {"requests": 0, "active": 0, "max_active": 0, "client_gone": 0}

    def begin(self, asked: Asked) -> int:
        """Note a request; how many of its session failed before."""
        with self._changed:
            same = [one for one in self._all if one.session == asked.session]
            failures = sum(one.status != 200 for one in same)
            counts = self._counts
            counts["requests"] += 1
            counts["active"] += 1
            counts["max_active"] = max(counts["max_active"], counts["active"])
            asked.number = counts["requests"]
            self._all.append(asked)
            self._changed.notify_all()
            return failures

    def end(self, asked: Asked, outcome: str) -> None:
        """Note how a request ended."""
        with self._changed:
            asked.outcome = outcome
            asked.seconds = round(time.time() - asked.started, 3)
            self._counts["active"] -= 1
            self._counts["client_gone"] += outcome == "client-gone"
            self._changed.notify_all()

    def release(self, name: str) -> None:
        """Let go whoever waits for the name."""
        with self._changed:
            self._released.add(name)
            self._changed.notify_all()

    def is_released(self, name: str) -> bool:
        """True when nobody need wait for the name."""
        return name in self._released

    def stats(self) -> Json:
        """The counts."""
        with self._changed:
            return dict(self._counts)

    def find(self, marker: str, outcome: str, *, count: int, wait_s: float) -> list[Json]:
        """The requests that contain the marker, when there are enough or the time is over."""

        def fitting() -> list[Asked]:
            return [
                one
                for one in self._all
                if (marker in one.last_user or marker in one.session)
                and (not outcome or one.outcome == outcome)
            ]

        with self._changed:
            self._changed.wait_for(lambda: len(fitting()) >= count, wait_s)
            return [asdict(one) for one in fitting()]


class Gone(Exception):
    """The client closed the connection."""


class Answering(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    ledger: Ledger

    def log_message(self, format: str, *args: Json) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """`/v1/models`, `/stats` and `/requests`."""
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/stats":
            self._send_json(200, self.ledger.stats())
        elif address.path == "/requests":
            found = self.ledger.find(
                query.get("marker", ""),
                query.get("outcome", ""),
                count=int(query.get("count", "0")),
                wait_s=float(query.get("wait", "0")),
            )
            self._send_json(200, found)
        else:
            model = {"id": "fake-1", "object": "model", "owned_by": "fake"}
            self._send_json(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """A completion, or `/release/NAME`."""
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.startswith("/release/"):
            self.ledger.release(self.path.removeprefix("/release/"))
            self._send_json(200, {})
            return
        body = json.loads(raw)
        asked, outcome = read(body), "done"
        plan = decide(asked, failures=self.ledger.begin(asked))
        asked.status, asked.text, asked.call = plan.status, plan.text, plan.call
        try:
            self._answer(plan, asked, is_stream=bool(body.get("stream")))
        except (Gone, OSError):
            outcome = "client-gone"
            self.close_connection = True
        finally:
            self.ledger.end(asked, outcome)

    def _answer(self, plan: Plan, asked: Asked, *, is_stream: bool) -> None:
        if plan.hangs:
            self._wait(3600)
        self._wait(plan.sleep_s)
        self._wait_for(plan.hold)
        if plan.status != 200:
            failure = {"message": f"scripted failure {plan.status}", "type": "server_error"}
            self._send_json(plan.status, {"error": {**failure, "code": "scripted"}})
        elif is_stream:
            self._stream(plan, asked)
        else:
            self._send_json(200, self._whole(plan, asked))

    def _whole(self, plan: Plan, asked: Asked) -> Json:
        message: Json = {"role": "assistant", "content": plan.text or None}
        if plan.call:
            message["tool_calls"] = [_call(plan.call, asked)]
        choice = {"index": 0, "message": message, "finish_reason": _finish(plan)}
        head = {"id": f"chatcmpl-{asked.number}", "object": "chat.completion", "model": "fake-1"}
        return {**head, "created": 0, "choices": [choice], "usage": _usage(plan, asked)}

    def _stream(self, plan: Plan, asked: Asked) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self._send_delta(asked, {"role": "assistant", "content": ""})
        pieces = PIECES.findall(plan.text)
        for index, piece in enumerate(pieces):
            if plan.halt and index == len(pieces) // 2:
                self._wait_for(plan.halt)
            self._send_delta(asked, {"content": piece})
            self._wait(plan.pace_s)
        if plan.call:
            self._send_delta(asked, {"tool_calls": [{"index": 0, **_call(plan.call, asked)}]})
        self._send_delta(asked, {}, finish=_finish(plan))
        self._send_chunk(asked, {"choices": [], "usage": _usage(plan, asked)})
        self._send_line("[DONE]")

    def _send_delta(self, asked: Asked, delta: Json, *, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._send_chunk(asked, {"choices": [choice]})

    def _send_chunk(self, asked: Asked, content: Json) -> None:
        head = {"id": f"chatcmpl-{asked.number}", "object": "chat.completion.chunk", "created": 0}
        self._send_line(json.dumps({**head, "model": "fake-1", **content}))

    def _send_line(self, text: str) -> None:
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def _send_json(self, status: int, content: Json) -> None:
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _wait(self, seconds: float) -> None:
        """Raises: Gone."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check_client()
            time.sleep(min(0.05, left))

    def _wait_for(self, name: str) -> None:
        """Raises: Gone."""
        while name and not self.ledger.is_released(name):
            self._check_client()
            time.sleep(0.01)

    def _check_client(self) -> None:
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
            raise Gone


def _call(call: tuple[str, Json], asked: Asked) -> Json:
    function = {"name": call[0], "arguments": json.dumps(call[1])}
    return {"id": f"call_{asked.number}", "type": "function", "function": function}


def _finish(plan: Plan) -> str:
    return "tool_calls" if plan.call else "stop"


def _usage(plan: Plan, asked: Asked) -> Json:
    taken = sum(len(one["text"].split()) for one in asked.messages)
    given = max(1, len(plan.text.split()))
    return {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}


class Server(ThreadingHTTPServer):
    """Takes many connections at the same moment."""

    daemon_threads = True
    request_queue_size = 256


def main() -> None:
    """Serve until killed, or until whoever started this closes its end of standard input."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--port", type=int, default=0, help="0 picks a free one")
    answering = type("AnsweringWithLedger", (Answering,), {"ledger": Ledger()})
    server = Server(("127.0.0.1", options.parse_args().port), answering)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
