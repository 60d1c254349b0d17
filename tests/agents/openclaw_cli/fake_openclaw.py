"""A small `openclaw` that behaves like the real one, as far as a caller can tell.

The command is a launcher; the work is done by a child in a process group of its own, which holds
the state directory's lock. A launcher that is killed leaves the child behind. What happens is
told by the message (`echo`, `history`, `hang`, `gate:<fifo>`) and by variables:

    FAKE_LOG       a file that gets one JSON line for each start of the command
    FAKE_OUTPUT    a file with what to write, FAKE_ERRORS one for the error stream
    FAKE_EXIT      the exit code
    FAKE_PARALLEL  runs do not exclude each other

A gateway holds the state directory when there is a file `gateway` in it; when that is not empty,
the gateway is out of reach.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ["OPENCLAW_STATE_DIR"])


def main() -> int:
    if "--child" in sys.argv:
        sys.argv.remove("--child")
        return work(sys.argv[1:])
    note({"argv": sys.argv[1:], "pid": os.getpid(), "cwd": str(Path.cwd())})
    child = subprocess.Popen(
        [sys.executable, "-IS", __file__, "--child", *sys.argv[1:]], start_new_session=True
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    return 143 if code < 0 else code


def work(arguments: list[str]) -> int:
    gateway = STATE / "gateway"
    has_gateway = gateway.exists()
    is_local = "--local" in arguments
    if is_local and has_gateway:
        return fail(
            "A Gateway is running for this state directory (pid 1, port 2). Run without --local."
        )
    if not is_local and not (has_gateway and not gateway.read_text()):
        return fail("Gateway not reachable at ws://127.0.0.1:2 (ECONNREFUSED).")
    lock = (STATE / "lock").open("w")
    if is_local and not os.environ.get("FAKE_PARALLEL"):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return fail("failed to acquire gateway state ownership")
    (STATE / "child.pid").write_text(str(os.getpid()))
    note({"child": os.getpid()})
    answer = {"payloads": [{"text": say(arguments), "mediaUrl": None}], "meta": META}
    document = answer if is_local else {"runId": "r", "status": "ok", "result": answer}
    write(sys.stdout, os.environ.get("FAKE_OUTPUT"), json.dumps(document))
    write(sys.stderr, os.environ.get("FAKE_ERRORS"), "[agents] a log line {not json}\n")
    return int(os.environ.get("FAKE_EXIT", "0"))


META = {
    "durationMs": 5,
    "agentMeta": {"provider": "fake", "model": "fake-1", "usage": {"total": 3}},
    "stopReason": "stop",
}


def say(arguments: list[str]) -> str:
    message = value_of("--message", arguments)
    if message is None:
        message = Path(value_of("--message-file", arguments) or "").read_text(encoding="utf-8")
        return f"read {len(message)}"
    if message == "hang":
        signal.pause()
    if message.startswith("gate:"):
        return Path(message.removeprefix("gate:")).read_text()
    session = value_of("--session-id", arguments) or value_of("--session-key", arguments)
    sessions = STATE / "sessions.json"
    known = json.loads(sessions.read_text()) if sessions.exists() else {}
    known.setdefault(session, []).append(message)
    sessions.write_text(json.dumps(known))
    return f"history: {known[session]}" if message == "history" else f"echo: {message}"


def value_of(name: str, arguments: list[str]) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


def fail(message: str) -> int:
    print(json.dumps({"ok": False, "error": {"type": "cli_error", "message": message}}))
    return 1


def note(entry: dict[str, object]) -> None:
    if log := os.environ.get("FAKE_LOG"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def write(stream: object, path: str | None, text: str) -> None:
    content = Path(path).read_bytes() if path else text.encode()
    stream.buffer.write(content)
    stream.flush()


sys.exit(main())
