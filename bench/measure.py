"""What a run costs: times seen by the loader, memory and CPU of the server (Linux)."""

import os
from collections.abc import Sequence
from pathlib import Path


def percentile(values: Sequence[float], share: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def summarize(latencies: Sequence[float], errors: int, wall: float) -> dict:
    return {
        "ok": len(latencies),
        "errors": errors,
        "wall_s": round(wall, 3),
        "rps": round(len(latencies) / wall, 1),
        "p50_ms": ms(percentile(latencies, 0.5)),
        "p99_ms": ms(percentile(latencies, 0.99)),
        "max_ms": ms(max(latencies, default=None)),
    }


def resident_kb(pid: int | None) -> int | None:
    """Memory of a process."""
    if not pid:
        return None
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return None


def cpu_s(pid: int | None) -> float:
    """CPU seconds used so far by a process with all its threads, and by its living children."""
    total, todo = 0.0, [pid] if pid else []
    while todo:
        process = Path(f"/proc/{todo.pop()}")
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            for thread in (process / "task").iterdir():
                todo += map(int, (thread / "children").read_text().split())
        except OSError:
            continue
    return total
