"""How many Python calls an operation makes: the same number on every machine.

`./dev bench --quick` says what changed; `./dev bench --quick --update` writes new figures.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SLACK = 1.15


@pytest.mark.slow
def test_operations_make_no_more_calls_than_the_figures_in_the_repository_say() -> None:
    known = json.loads((BENCH / "figures.json").read_text("utf-8"))["calls"]
    code = "import json, count_calls as c; print(json.dumps(c.count_operations(c.OPERATIONS)))"
    counted = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCH, capture_output=True, text=True, check=True
    )
    now = {name: row["calls"] for name, row in json.loads(counted.stdout).items()}
    assert now.keys() == known.keys()
    more = {name: (now[name], known[name]) for name in now if now[name] > known[name] * SLACK}
    assert not more, "more calls than before (now, known)"
