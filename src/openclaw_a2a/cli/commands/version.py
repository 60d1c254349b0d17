"""`version`: what runs here, ready to be pasted into a report."""

import platform
import sys
from importlib.metadata import version as version_of

from openclaw_a2a.cli.errors import DONE
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.render.terminal import print_json, print_table


def version(*, as_json: JsonFlag = False) -> int:
    """Show the version and its environment."""
    import sqlite3

    facts = {
        "openclaw-a2a": version_of("openclaw-a2a"),
        "a2a": "1.0, 0.3",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    if as_json:
        print_json(facts)
    else:
        print_table(list(facts.items()))
    return DONE
