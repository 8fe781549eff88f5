"""Records commands on a terminal as an animated SVG: `python docs/_site/recording.py`, which takes about 20 seconds.

The commands are run in a pseudo-terminal, and what they show is drawn as it was, at the speed at which it came. Only
typing is added, and waiting for what nobody wants to watch is cut to a second.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import pyte

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "recording.svg"
COMMANDS = (
    "dovetail compile digits.onnx --backend cpu-int8 --backend cpu-bf16 --data test.npz --pin conv_2=cpu-bf16 -o out",
    "dovetail explain out conv_2",
    "dovetail report out",
)
COLUMNS, ROWS = 116, 34
_TYPING = 0.03  # seconds for a character
_PAUSE = 1.0  # seconds, the longest one without a change
_READING = 2.5  # seconds after each command
_STEP = 0.12  # seconds, the shortest time between two frames
_WIDTH, _LINE = 8.0, 18  # of a character, and height of a line
_COLORS = {"default": "#d8dee6", "red": "#ff8a80", "yellow": "#f0c674", "brown": "#f0c674", "cyan": "#7fd0d8",
           "magenta": "#d59bf6", "green": "#9fd68b", "blue": "#7db4f0"}  # fmt: skip


class Frame(NamedTuple):
    """What a terminal shows from a time on: for each line, texts with their color and weight."""

    time: float
    lines: tuple[tuple[tuple[str, str, bool], ...], ...]


def frames(commands: tuple[str, ...], folder: Path) -> Iterator[Frame]:
    """Run the commands in a folder, and yield what the terminal shows, with the times of a viewer."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    clock = 0.0
    for command in commands:
        stream.feed(b"\x1b[1m$ \x1b[0m")
        for character in command:
            stream.feed(character.encode())
            clock += _TYPING
            yield Frame(clock, _lines(screen))
        stream.feed(b"\r\n")
        last = time.monotonic()
        for part in _output(command.split(), folder):
            stream.feed(part)
            now = time.monotonic()
            clock += min(now - last, _PAUSE)
            last = now
            yield Frame(clock, _lines(screen))
        clock += _READING


def _output(command: list[str], folder: Path) -> Iterator[bytes]:
    """Yield what a command writes on a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS),
                   "XDG_CACHE_HOME": str(folder / "cache")}  # fmt: skip
    command = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment) as process:
        os.close(theirs)
        while select.select([ours], [], [], 300)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            yield part
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")


def _lines(screen: pyte.Screen) -> tuple[tuple[tuple[str, str, bool], ...], ...]:
    """Return the texts on a screen, neighbors in one style joined."""
    found = []
    for row in range(ROWS):
        runs: list[list] = []
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            color = _COLORS.get(cell.fg, _COLORS["default"])
            if runs and runs[-1][1:] == [color, cell.bold]:
                runs[-1][0] += cell.data
            else:
                runs.append([cell.data, color, cell.bold])
        if runs:
            runs[-1][0] = runs[-1][0].rstrip()
        found.append(tuple((text, color, bold) for text, color, bold in runs if text))
    return tuple(found)


def drawing(shown: list[Frame], told: str) -> str:
    """Return an SVG that shows the frames one after the other, again and again; without animation it shows the last.

    `told` is its description for those who cannot see it.
    """
    kept = thinned(shown)
    length = kept[-1].time + _READING
    width, height = COLUMNS * _WIDTH + 32, ROWS * _LINE + 32
    styles = ["text{font:13.3px ui-monospace,'DejaVu Sans Mono',Menlo,monospace}"]
    texts = []
    for number, stretch in enumerate(stretches([*kept, Frame(length, ((),) * ROWS)])):
        styles.append(stretch.style(f"k{number}", length))
        texts.append(stretch.text(f"k{number}"))
    styles.append("@media(prefers-reduced-motion:reduce){text{animation:none!important}}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">'
        f"<title>A recording of a terminal</title><desc>{escape(told)}</desc><style>{''.join(styles)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#1b1e22"/>\n' + "\n".join(texts) + "\n</svg>\n"
    )


def thinned(shown: list[Frame]) -> list[Frame]:
    """Return the frames that differ, no more than one in a step of time."""
    kept: list[Frame] = []
    for frame in shown:
        if kept and frame.lines == kept[-1].lines:
            continue
        if kept and frame.time - kept[-1].time < _STEP:
            kept[-1] = Frame(kept[-1].time, frame.lines)
        else:
            kept.append(frame)
    return kept


class Stretch(NamedTuple):
    """A line of the terminal, from a time until another one."""

    row: int
    since: float
    until: float
    runs: tuple[tuple[str, str, bool], ...]

    def style(self, name: str, length: float) -> str:
        """Return the animation that shows it in its time, in a recording of `length` seconds."""
        start, end = (f"{100 * at / length:.3f}%" for at in (self.since, self.until))
        last = self.until >= length
        first, rest = ("visible" if shown else "hidden" for shown in (self.since == 0, last))
        steps = f"0%,{start}{{visibility:{first}}}{start},{end}{{visibility:visible}}"
        steps += "100%{visibility:visible}" if last else f"{end},100%{{visibility:hidden}}"
        animated = f"visibility:{rest};animation:{name} {length:.2f}s step-end infinite"
        return f"@keyframes {name}{{{steps}}}.{name}{{{animated}}}"

    def text(self, name: str) -> str:
        """Return its text."""
        spans = []
        for text, color, bold in self.runs:
            weight = ' font-weight="700"' if bold else ""
            spans.append(f'<tspan fill="{color}"{weight}>{escape(text)}</tspan>')
        y = 16 + _LINE * (self.row + 1) - 5
        return f'<text class="{name}" x="16" y="{y}" xml:space="preserve">{"".join(spans)}</text>'


def stretches(shown: list[Frame]) -> Iterator[Stretch]:
    """Yield each line once for every stretch of time in which it does not change: lines stay for many frames."""
    open_lines: dict[int, tuple[float, tuple]] = {}
    for frame in shown:
        for row, runs in enumerate(frame.lines):
            since, before = open_lines.get(row, (0.0, ()))
            if runs == before:
                continue
            if before:
                yield Stretch(row, since, frame.time, before)
            open_lines[row] = (frame.time, runs)


def main() -> None:
    """Record the commands, and write the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("digits.onnx", "test.npz"):
            (folder / file).symlink_to(ROOT / "examples" / "digits" / file)
        text = drawing(list(frames(COMMANDS, folder)), "\n".join(COMMANDS))
    PICTURE.write_text(text, encoding="utf-8")
    print(PICTURE.relative_to(ROOT), f"{len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
