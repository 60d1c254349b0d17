"""Draws line plots with logarithmic axes as plain SVG, readable on light and dark pages."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 48, 52
_LIGHT = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")
_DARK = ("#58a6ff", "#f0883e", "#3fb950", "#bc8cff")
_LABEL_GAP = 17

Series = Mapping[str, Sequence[tuple[float, float]]]
"""By the name of a line, its points: x and y, both above 0."""


def draw_plot(title: str, x_label: str, y_label: str, series: Series) -> str:
    """The plot as an SVG document."""
    points = [point for line in series.values() for point in line]
    plot = _Axes([x for x, _ in points], [y for _, y in points])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<style>{_style()}</style>",
        # A page may be dark on a system that is light.
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
        f'<text class="axis" x="{LEFT}" y="40">{escape(y_label)}</text>',
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 10}" '
        f'text-anchor="middle">{escape(x_label)}</text>',
        *plot.grid(),
    ]
    ends = []
    for number, (name, line) in enumerate(series.items()):
        placed = [plot.place(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline class="line s{number}" points="{path}"/>')
        parts += [
            f'<circle class="dot s{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in placed
        ]
        ends.append((placed[-1][1], number, f"{name}: {short(line[0][1])} to {short(line[-1][1])}"))
    parts += _labels(ends)
    return "\n".join([*parts, "</svg>", ""])


def write_plot(path: Path, title: str, x_label: str, y_label: str, series: Series) -> None:
    """Draw a plot into a file."""
    path.write_text(draw_plot(title, x_label, y_label, series), encoding="utf-8")


def short(value: float) -> str:
    """A number as people write it: 3 digits at most, with k and M."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{float(f'{value / limit:.3g}'):g}{unit}"
    return f"{float(f'{value:.3g}'):g}"


class _Axes:
    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self._x = math.log10(min(xs)), math.log10(max(xs))
        # At least a decade, and whole steps of 1, 2, 5: a flat line must look flat.
        low, high = _round_down(min(ys) / 1.5), _round_up(max(ys) * 1.5)
        while high / low < 20:
            low, high = _round_down(low / 1.01), _round_up(high * 1.01)
        self._y = math.log10(low), math.log10(high)

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - self._x[0]) / ((self._x[1] - self._x[0]) or 1)
        up = (math.log10(y) - self._y[0]) / (self._y[1] - self._y[0])
        return (
            LEFT + across * (WIDTH - RIGHT - LEFT),
            HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP),
        )

    def grid(self) -> list[str]:
        parts = []
        for tick in _ticks(10 ** self._y[0], 10 ** self._y[1]):
            _, y = self.place(10 ** self._x[0], tick)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text class="axis" x="{LEFT - 8}" y="{y + 4:.1f}" '
                f'text-anchor="end">{short(tick)}</text>'
            )
        for power in range(math.floor(self._x[0]), math.ceil(self._x[1]) + 1):
            if self._x[0] - 0.01 <= power <= self._x[1] + 0.01:
                x, _ = self.place(10**power, 10 ** self._y[0])
                parts.append(
                    f'<text class="axis" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" '
                    f'text-anchor="middle">{short(10**power)}</text>'
                )
        return parts


def _ticks(low: float, high: float) -> list[float]:
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(step * power for step in (1, 2, 5) if step * power <= value)


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return min(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _labels(ends: list[tuple[float, int, str]]) -> list[str]:
    """The names of the lines at their ends, moved apart where they would overlap."""
    parts, last = [], -math.inf
    for y, number, text in sorted(ends):
        last = max(y, last + _LABEL_GAP)
        parts.append(
            f'<text class="label t{number}" x="{WIDTH - RIGHT + 10}" '
            f'y="{last + 4:.1f}">{escape(text)}</text>'
        )
    return parts


def _style() -> str:
    def colors(lines: Sequence[str], page: str, text: str, faint: str, grid: str) -> str:
        own = "".join(
            f".s{n}{{stroke:{c}}}.dot.s{n},.t{n}{{fill:{c}}}" for n, c in enumerate(lines)
        )
        page = f".page{{fill:{page}}}"
        return f"{page}.title{{fill:{text}}}.axis{{fill:{faint}}}.grid{{stroke:{grid}}}{own}"

    light = colors(_LIGHT, "#ffffff", "#1f2328", "#59636e", "#d1d9e0")
    dark = colors(_DARK, "#0d1117", "#f0f6fc", "#9198a1", "#3d444d")
    return (
        "text{font:12px system-ui,sans-serif}.title{font-size:14px;font-weight:600}"
        ".line{fill:none;stroke-width:2}.grid{stroke-width:1}.label{font-size:12px}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )
