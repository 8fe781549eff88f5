"""Regions for engines on random graphs: time against the number of nodes, prices against the lowest, and how few.

python bench/engine_regions.py [NODES ...]
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dovetail_placement.engine_regions.local_search import cut, runs
from dovetail_placement.engine_regions.problem import OUTSIDE, Problem, Traffic, earliest, price

from tests.property.region_problems import cheapest, random_problem

SMALL, SEEDS = range(6, 13), 300


def large(nodes: int, reach: int, seed: int = 1) -> Problem:
    """A random graph in which each node reads up to three of the `reach` before it; a tenth is outside."""
    draw = random.Random(seed)
    legal = [draw.random() >= 0.1 for _ in range(nodes)]
    readers: dict[int, set[int]] = {node: set() for node in range(-1, nodes)}
    for node in range(nodes):
        for _ in range(draw.choice([1, 1, 2, 3])):
            readers[draw.randrange(max(0, node - reach), node) if node else OUTSIDE].add(node)
    values = [
        Traffic(draw.randint(1, 1000), producer, tuple(sorted(reading)), producer >= 0 and not reading)
        for producer, reading in readers.items()
    ]
    return Problem(legal, values, launch=1000)


def dense(seed: int, launch: int) -> Problem:
    """A random graph of twelve nodes, each reading up to three of any before it, and values of 1 to 1000 bytes."""
    draw = random.Random(seed)
    share, most = draw.choice([0.2, 0.35, 0.5]), draw.choice([1, 2, 3])
    legal = [draw.random() >= share for _ in range(12)]
    readers: dict[int, set[int]] = {node: set() for node in range(-1, 12)}
    for node in range(12):
        for producer in draw.sample(range(-1, node), min(node + 1, draw.randint(1, most))):
            readers[producer].add(node)
    values = [
        Traffic(draw.choice([1, 10, 100, 1000]), producer, tuple(sorted(reading)), producer >= 0 and not reading)
        for producer, reading in readers.items()
    ]
    return Problem(legal, values, launch=launch)


def mixed(seed: int, launch: int) -> Problem:
    """A random graph of 6 to 12 nodes, with fused groups."""
    return random_problem(seed, SMALL[seed % len(SMALL)], launch)


def shares() -> None:
    """Print in how many small graphs the price is the lowest, for levels alone and with nodes moved."""
    print("| graphs | price of a region | number | lowest price | without moving nodes | regions, of runs |")
    print("|---|---:|---:|---:|---:|---:|")
    for make, launches in ((mixed, (0, 100)), (dense, (0, 100, 1000))):
        for launch in launches:
            best = first = found = stock = 0
            for seed in range(SEEDS):
                problem = make(seed, launch)
                lowest, region = cheapest(problem), cut(problem)
                levels = zip(earliest(problem), problem.legal, strict=True)
                best += price(problem, region) == lowest
                first += price(problem, [level if legal else OUTSIDE for level, legal in levels]) == lowest
                found += len(set(region) - {OUTSIDE})
                stock += len(set(runs(problem)) - {OUTSIDE})
            shown = f"{best / SEEDS:.1%} | {first / SEEDS:.1%} | {found / stock:.2f}"
            print(f"| {make.__name__} | {launch} | {SEEDS} | {shown} |", flush=True)


def times(sizes: list[int]) -> None:
    """Print the time per node, in relation to that of the first size."""
    print("| nodes | each reads from | regions | runs | s | time per node, of the smallest |")
    print("|---:|---:|---:|---:|---:|---:|")
    for reach in (4, 50, 1_000_000):
        per_node = 0.0
        for size in sizes:
            problem = large(size, reach)
            start = time.process_time()
            region = cut(problem)
            took = time.process_time() - start
            per_node = per_node or took / size
            counts = len(set(region) - {OUTSIDE}), len(set(runs(problem)) - {OUTSIDE})
            near = f"the {reach} before" if reach < size else "any before"
            print(f"| {size} | {near} | {counts[0]} | {counts[1]} | {took:.2f} | {took / size / per_node:.2f} |")


if __name__ == "__main__":
    shares()
    times([int(text) for text in sys.argv[1:]] or [10_000, 30_000, 100_000])
