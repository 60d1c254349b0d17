"""What the README shows about OpenClaw works."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.openclaw.openclaw_process import OpenClaw

README = Path(__file__).parents[2] / "README.md"
COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))


def shown() -> str:
    """What `./dev up` prints, as the README has it."""
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n\$ \./dev up\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    [block] = blocks
    return block


def test_up_serves_openclaws_agents_as_in_the_readme(
    start_gateway: Any, openclaw: OpenClaw
) -> None:
    our_gateway = start_gateway(
        env={"OPENCLAW_CONFIG_PATH": str(openclaw.config), "PATH": os.defpath}
    )
    lines = our_gateway.output().splitlines(keepends=True)
    # Those that begin with a time are the log's.
    printed = "".join(line for line in lines if not re.match(r"\d{4}-", line))
    printed = printed.replace(f" --url {our_gateway.url}", "").replace(
        COMMAND, ".venv/bin/openclaw-a2a"
    )
    printed = printed.replace(our_gateway.url, "http://127.0.0.1:9900")
    printed = printed.replace(openclaw.ws_url, "ws://127.0.0.1:18789")
    printed = re.sub(r"code=[\w-]+", "code=...", printed)
    assert printed.replace(str(our_gateway.home), "/your/home") == shown()
    sent = subprocess.run(
        [COMMAND, "send", "--url", our_gateway.url, "hello"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert sent.stdout == "echo: hello\n"
    assert sent.stderr.splitlines()[-1] == "completed"
