"""Draws the distributions of hand-overs as an SVG picture that is readable in light and in dark mode.

Run from the project's root on a file that `--json` of a hand-over benchmark has written::

    python bench/picture.py figures.json picture.svg

Pure apart from the command line: a picture is a function of the figures.  Each number of processes has a panel.  A
curve shows which share of a contestant's hand-overs took at most so long: the further left, the better.  The times
are on a logarithmic scale, because the contestants differ by factors.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.tally import FLOOR, OURS

WIDTH, PANEL, PLOT_LEFT, PLOT_WIDTH, PLOT_HEIGHT, TOP = 860, 270, 56, 500, 190, 92
LEGEND: Final = PLOT_LEFT + PLOT_WIDTH + 28
LAST: Final = 99  # the percentile at which a curve ends: the greatest hand-over of all says little

# Told apart by lightness as well, on both grounds; ours is the first and the thickest.
LIGHT: Final = ("#c2410c", "#6b7280", "#1d4ed8", "#0f766e", "#7e22ce", "#a16207", "#be185d", "#111827")
DARK: Final = ("#fb923c", "#9ca3af", "#60a5fa", "#2dd4bf", "#c084fc", "#facc15", "#f472b6", "#f3f4f6")


def drawn(report: Mapping[str, Any]) -> str:
    """Return the picture of a report, the plain data of a hand-over benchmark, as the text of an SVG file."""
    panels: Sequence[Mapping[str, Any]] = report["results"]
    names = list(dict.fromkeys(name for panel in panels for name in panel["contestants"]))
    styles = {
        name: f"s{number % len(LIGHT)}{' dashed' if name == FLOOR else ''}{' thick' if name == OURS else ''}"
        for number, name in enumerate(names)
    }
    low, high = _span(panels)
    height = TOP + PANEL * len(panels)
    title = "How long a lock takes to change hands"
    about = f"Share of hand-overs that took at most so long, by contestant: {', '.join(names)}"
    server = f"ZooKeeper {report['zookeeper'] or ''} ({report['server']})"
    hold = f"hold {report['hold'] * 1000:g} ms, {report['rounds']} rounds of {report['handovers']}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-labelledby="title about">',
        f'<title id="title">{title}</title>',
        f'<desc id="about">{escape(about)}</desc>',
        f"<style>{_style()}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        _text(20, 30, f"{title}, in microseconds", "head"),
        _text(20, 52, "share of hand-overs that took at most so long: the further left, the better", "quiet"),
        _text(20, 71, f"{server}, Python {report['python']}, {report['cores']} cores, {hold}", "quiet"),
    ]
    for number, panel in enumerate(panels):
        lines += _panel(panel, TOP + PANEL * number, low, high, styles)
    return "\n".join([*lines, "</svg>", ""])


def _style() -> str:
    def colours(palette: Sequence[str]) -> str:
        return "".join(f".s{number}{{stroke:{colour}}}" for number, colour in enumerate(palette))

    return (
        "text{font:13px system-ui,sans-serif;fill:#1f2328}.head{font-size:17px;font-weight:600}.quiet{fill:#59636e}"
        ".number{text-anchor:end;font-variant-numeric:tabular-nums}.tick{text-anchor:middle}.ours{font-weight:600}"
        ".ground{fill:#ffffff}.grid{stroke:#d8dee4;stroke-width:1}"
        ".curve{fill:none;stroke-width:1.8;stroke-linejoin:round}.thick{stroke-width:3.4}.dashed{stroke-dasharray:6 4}"
        f"{colours(LIGHT)}"
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}.ground{fill:#0d1117}"
        f".grid{{stroke:#30363d}}{colours(DARK)}}}"
    )


def _span(panels: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the least and the greatest time that is drawn, the same in all panels so that they can be compared."""
    times = [
        time
        for panel in panels
        for one in panel["contestants"].values()
        for time in one["percentiles"][: LAST + 1]
        if time is not None
    ]
    low = max(min(times, default=1.0), 1.0)
    high = max(times, default=low)
    return low, high if high > low else low * 10


def _panel(panel: Mapping[str, Any], top: float, low: float, high: float, styles: Mapping[str, str]) -> list[str]:
    bottom = top + 28 + PLOT_HEIGHT

    def across(time: float) -> float:
        return PLOT_LEFT + PLOT_WIDTH * math.log(max(time, low) / low) / math.log(high / low)

    def up(percent: float) -> float:
        return bottom - PLOT_HEIGHT * percent / 100

    lines = [_text(20, top + 14, f"{panel['workers']} processes", "ours")]
    for percent in (0, 25, 50, 75, 100):
        lines.append(_line(PLOT_LEFT, up(percent), PLOT_LEFT + PLOT_WIDTH, up(percent)))
        lines.append(_text(PLOT_LEFT - 8, up(percent) + 4, f"{percent} %", "number quiet"))
    for time in _ticks(low, high):
        lines.append(_line(across(time), bottom, across(time), bottom - PLOT_HEIGHT))
        lines.append(_text(across(time), bottom + 18, f"{time:,}", "tick quiet"))
    lines.append(_text(LEGEND + 200, top + 14, "median", "number quiet"))
    lines.append(_text(LEGEND + 262, top + 14, "99 %", "number quiet"))
    ordered = sorted(
        panel["contestants"].items(), key=lambda item: math.inf if item[1]["median"] is None else item[1]["median"]
    )
    for row, (name, figures) in enumerate(ordered):
        style = f"curve {styles[name]}"
        points = [
            f"{across(time):.1f},{up(percent):.1f}"
            for percent, time in enumerate(figures["percentiles"][: LAST + 1])
            if time is not None
        ]
        if points:
            lines.append(f'<polyline class="{style}" points="{" ".join(points)}"/>')
        y = top + 40 + 22 * row
        emphasis = "ours" if name == OURS else ""
        lines.append(f'<line class="{style}" x1="{LEGEND}" y1="{y - 4}" x2="{LEGEND + 26}" y2="{y - 4}"/>')
        lines.append(_text(LEGEND + 36, y, name, emphasis))
        for column, key in ((200, "median"), (262, "p99")):
            value = "" if figures[key] is None else f"{figures[key]:,.0f}"
            lines.append(_text(LEGEND + column, y, value, f"number {emphasis}".strip()))
    return lines


def _ticks(low: float, high: float) -> list[int]:
    """Return the round times between two: 1, 2 and 5 times a power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = (factor * 10**power for power in powers if power >= 0 for factor in (1, 2, 5))
    return [time for time in found if low <= time <= high]


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Draw the figures of a hand-over benchmark.")
    parser.add_argument("figures", type=Path, help="what --json has written")
    parser.add_argument("picture", type=Path, help="the SVG file to write")
    options = parser.parse_args(arguments)
    report = json.loads(options.figures.read_text(encoding="utf-8"))
    options.picture.write_text(drawn(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
