"""The solvers of typing on the same model: seconds, Casts, and what they cost by the shipped cost table.

    python bench/solvers.py MODEL... [--backend gpu-fp16] [--repeat 3]

`problem` is setting the problem up, which all have in common and which is the floor; `solve` is what the solver takes.
`cost` is that of the types chosen, over that of `forward`. Medians, each in a process of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measure import alone, median, table, timed

SOLVERS = ("forward", "fixpoint", "min-cut")


def solved(path: Path, backend: str, name: str) -> dict:
    """One solver on a placed model."""
    from dovetail.ir import gc_paused
    from dovetail.passes import Context, Request, compose
    from dovetail.plugin import load_plugins
    from dovetail_onnx.opening import open_model
    from dovetail_precision.costs import cost_of
    from dovetail_precision.def_use import def_use_chains
    from dovetail_precision.problem_builder import build_problem

    model, ctx = open_model(path), Context(Request.of(backend, solver=name), plugins=load_plugins())
    compose(ctx.registry, ("normalize", "analyze", "place"), ctx.request, ctx.plugins).run(model, ctx)
    solve = ctx.registry.solver[name]
    with gc_paused():
        problem, setting_up = timed(build_problem, model, ctx)
        _, solving = timed(solve, problem)
    joins = sum(len(chain.wanted - {chain.held}) for chain in def_use_chains(problem) if not chain.constant)
    return {"problem": setting_up, "solve": solving, "joins": joins, "cost": cost_of(problem)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--backend", default="gpu-fp16")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for path in options.models:
        found = {
            name: median([alone(solved, path, options.backend, name) for _ in range(options.repeat)])
            for name in SOLVERS
        }
        for name, row in found.items():
            rows.append({"model": path.stem, "solver": name} | row | {"cost": row["cost"] / found["forward"]["cost"]})
    table(rows)


if __name__ == "__main__":
    main()
