"""The front as a plot: time against noise of every candidate and of predicted plans, in SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_tune.outcome import Tuned, TunedCandidate

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 760, 440, 70, 60, 40, 30
_EXACT = 150.0  # dB; float32 differs from itself by about this much in another order of sums


@dataclass(frozen=True)
class _Axis:
    """A linear axis from values to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Return round values, about five."""
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= raw)
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, math.floor(self.high / step) + 1)]


def front_svg(tuned: Tuned) -> str:
    """Return an SVG document: measured candidates as points, those that miss the goals hollow, the front as a line.

    Results that are exact, or more accurate than 150 dB, stand at 150 dB.
    """
    points = [
        entry for entry in tuned.entries if entry.seconds and entry.snr_db is not None and entry.snr_db > -math.inf
    ]
    front = sorted((1000 * seconds, min(snr, _EXACT)) for seconds, snr in _scaled(tuned))
    times = [1000 * entry.seconds for entry in points if entry.seconds] + [time for time, _ in front]
    snrs = [min(entry.snr_db, _EXACT) for entry in points if entry.snr_db is not None] + [snr for _, snr in front]
    across = _Axis(0.0, 1.1 * max(times, default=1.0), _LEFT, _WIDTH - _RIGHT)
    up = _Axis(min([0.0, *snrs]), 1.1 * max([10.0, *snrs]), _HEIGHT - _BOTTOM, _TOP)
    title = html.escape(f"{tuned.model}: time and accuracy")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{title}</text>',
        *_axes(across, up),
    ]
    if front:
        path = " ".join(f"{across.at(time):.1f},{up.at(snr):.1f}" for time, snr in front)
        parts.append(f'<polyline points="{path}" fill="none" stroke="#888" stroke-dasharray="4 3"/>')
    parts += [_point(entry, entry is tuned.winner, across, up) for entry in points]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _scaled(tuned: Tuned) -> Sequence[tuple[float, float]]:
    """Return the front in the scale of the last race, as far as the host was in it."""
    host = next((entry.seconds for entry in tuned.entries if entry.candidate.is_baseline and entry.seconds), None)
    return [] if host is None else [(share * host, snr) for share, snr in tuned.front]


def _axes(across: _Axis, up: _Axis) -> list[str]:
    line = '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>'
    parts = []
    for tick in across.ticks():
        x = across.at(tick)
        parts.append(line.format(x, up.begin, x, up.end, "#eee"))
        parts.append(f'<text x="{x:.1f}" y="{up.begin + 18:.1f}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        y = up.at(tick)
        parts.append(line.format(across.begin, y, across.end, y, "#eee"))
        parts.append(f'<text x="{across.begin - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    center, middle = (across.begin + across.end) / 2, (up.begin + up.end) / 2
    return [
        *parts,
        line.format(across.begin, up.begin, across.end, up.begin, "black"),
        line.format(across.begin, up.begin, across.begin, up.end, "black"),
        f'<text x="{center:.1f}" y="{up.begin + 42:.1f}" text-anchor="middle">milliseconds</text>',
        f'<text transform="translate(18 {middle:.1f}) rotate(-90)" text-anchor="middle">SNR in dB</text>',
    ]


def _point(entry: TunedCandidate, is_winner: bool, across: _Axis, up: _Axis) -> str:
    x, y = across.at(1000 * (entry.seconds or 0.0)), up.at(min(entry.snr_db or 0.0, _EXACT))
    color = "#c33" if is_winner else "#36c"
    fill = color if entry.meets else "white"
    name = html.escape(entry.candidate.name)
    side = 'text-anchor="end" dx="-8"' if x > (across.begin + across.end) / 2 else 'dx="8"'
    return (
        f'<g><circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if is_winner else 4}" fill="{fill}" stroke="{color}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" {side}>{name}</text></g>'
    )
