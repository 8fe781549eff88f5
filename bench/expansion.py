"""The expansion moves of `min-cut` with three formats (int8, float16, float32) against the exact minimum.

    python bench/expansion.py [--graphs 200] [--nodes 200]

`gap` is the cost of the solver's choices over that of the minimum, which `scipy.optimize.milp` finds, less one; `start`
is the best of `forward`, `fixpoint` and everything high, likewise. Seconds are those of the process.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from measure import table

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))


def row(seed: int, nodes: int) -> dict[str, float]:
    """One random problem."""
    from dovetail_precision.costs import cost_of
    from dovetail_precision.solvers.fixpoint import solve_fixpoint
    from dovetail_precision.solvers.forward import solve_forward
    from dovetail_precision.solvers.min_cut import solve_min_cut
    from property.three_formats import least, random_problem, solve_all_high

    problem = random_problem(seed, nodes)
    starts = []
    for start in (solve_forward, solve_fixpoint, solve_all_high):
        start(problem)
        starts.append(cost_of(problem))
    begun = time.process_time()
    solve_min_cut(problem)
    solved = time.process_time()
    exact = least(problem)
    ended = time.process_time()
    return {
        "start": min(starts) / exact - 1,
        "gap": cost_of(problem) / exact - 1,
        "seconds": solved - begun,
        "exact": ended - solved,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=200)
    options = parser.parse_args()
    rows = [row(seed, options.nodes) for seed in range(options.graphs)]
    gaps = [found["gap"] for found in rows]
    table(
        [
            {
                "graphs": options.graphs,
                "nodes": options.nodes,
                "optimal": sum(gap == 0 for gap in gaps),
                "median gap %": f"{100 * median(gaps):.3f}",
                "worst gap %": f"{100 * max(gaps):.3f}",
                "above the best start": sum(found["gap"] > found["start"] for found in rows),
                "median start %": f"{100 * median(found['start'] for found in rows):.1f}",
                "seconds": f"{median(found['seconds'] for found in rows):.2f}",
                "seconds of milp": f"{median(found['exact'] for found in rows):.2f}",
            }
        ]
    )


if __name__ == "__main__":
    main()
