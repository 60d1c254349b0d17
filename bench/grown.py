"""What reading costs in a store of 1,000 and of 100,000 tasks."""

from pathlib import Path

from compare import run_load
from servers import LOADER_CORE, started

SIZES = (1_000, 100_000)
READS = {"get": "get --conns 4 --duration 3", "list": "list --conns 4 --duration 3 --page 50"}


def measure_grown(data: Path) -> dict:
    """CPU microseconds of the gateway per read at each size, and the ratio of the last to first."""
    rows: dict[str, dict[str, float]] = {name: {} for name in READS}
    with started("ours", data) as server:

        def load(command: str) -> dict:
            result = run_load(command.split(), server.url, pid=str(server.pid), core=LOADER_CORE)
            assert result is not None and not result["errors"], result
            return result

        tasks = 0
        for size in SIZES:
            load(f"fill --count {size - tasks} --conns 32")
            tasks = size
            for name, command in READS.items():
                rows[name][str(size)] = load(command)["cpu_us_per_op"]
    for row in rows.values():
        row["ratio"] = round(row[str(SIZES[-1])] / row[str(SIZES[0])], 3)
    return rows
