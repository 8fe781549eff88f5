"""Start-up: seconds of whole processes, in turns; the floor is an interpreter that does nothing.

python bench/start.py [--repeat 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from measure import table

COMMANDS = {
    "python, nothing": ["-c", ""],
    "import dovetail": ["-c", "import dovetail"],
    "dovetail --help": ["-m", "dovetail.cli.main", "--help"],
    "dovetail explain --help": ["-m", "dovetail.cli.main", "explain", "--help"],
    "dovetail backends": ["-m", "dovetail.cli.main", "backends"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(repeat + 1):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            if turn:  # the first fills caches
                times[name].append(time.perf_counter() - start)
    rows = [{"command": name, "median s": statistics.median(s), "fastest s": min(s)} for name, s in times.items()]
    table(rows)


if __name__ == "__main__":
    main()
