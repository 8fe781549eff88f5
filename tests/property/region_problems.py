"""Random problems of cutting regions, and their cheapest cuts by trying everything."""

from __future__ import annotations

import random

from dovetail_placement.engine_regions.problem import OUTSIDE, Problem, Traffic


def random_problem(seed: int, nodes: int, launch: int) -> Problem:
    """A random directed acyclic graph: chains and branches, a third of the nodes outside, values of 0 to 1000 bytes."""
    draw = random.Random(seed)
    share, reach = draw.choice([0.2, 0.35, 0.5]), draw.choice([2, 4, nodes])
    legal = [draw.random() >= share for _ in range(nodes)]
    readers: dict[int, set[int]] = {n: set() for n in range(-2, nodes)}
    for node in range(nodes):
        near = range(max(0, node - reach), node)
        for producer in draw.sample([*near, -1, -2], min(len(near) + 2, draw.choice([1, 1, 2, 3]))):
            readers[producer].add(node)
    values = [
        Traffic(draw.choice([0, 1, 10, draw.randint(1, 100), 1000]), max(producer, OUTSIDE), tuple(sorted(reading)),
                producer >= 0 and (not reading or draw.random() < 0.1))
        for producer, reading in readers.items()
    ]  # fmt: skip
    edges = [(p, r) for p, reading in readers.items() if p >= 0 for r in reading if legal[p] and legal[r]]
    fused_groups = draw.sample(edges, min(len(edges), draw.choice([0, 1, 2])))
    return Problem(legal, values, fused_groups, launch=launch, fused_group=draw.choice([0, 5, 50]))


def cheapest(problem: Problem) -> int:
    """The lowest price of any regions that can run one after the other.

    Regions are taken one by one from the nodes whose producers are done, so the order of the search is one in which
    they can run; what a set of done nodes costs does not depend on how they were divided.
    """
    count = len(problem.legal)
    before = [sum({1 << p for p in producers}) for producers in problem.before]
    legal = sum(1 << n for n in range(count) if problem.legal[n])

    def ready(done: int, taken: int, node: int) -> bool:
        return not before[node] & ~(done | taken)

    def cost(part: int) -> int:
        total = problem.launch
        for value in problem.values:
            home = value.producer != OUTSIDE and part >> value.producer & 1
            reading = sum(1 << reader for reader in value.readers)
            if home:
                total += value.weight * (value.leaves or bool(reading & ~part))
            else:
                total += value.weight * bool(reading & part)
        return total + problem.fused_group * sum(
            any(part >> n & 1 for n in fused_group) for fused_group in problem.fused_groups
        )

    best = {0: 0}
    for done in sorted(_closed(count, before), key=int.bit_count):
        # Nodes outside run as soon as they can: that never prevents a region.
        if done not in best:
            continue
        spent = best[done]
        outside = next((n for n in range(count) if not (done | legal) >> n & 1 and ready(done, 0, n)), None)
        if outside is not None:
            after = done | 1 << outside
            best[after] = min(best.get(after, spent), spent)
            continue
        for part in _parts(done, legal, before, count):
            after = done | part
            best[after] = min(best.get(after, spent + cost(part)), spent + cost(part))
    return best[(1 << count) - 1] - problem.fused_group * len(problem.fused_groups)


def _closed(count: int, before: list[int]) -> set[int]:
    """All sets of nodes whose producers are in them."""
    found = {0}
    for node in range(count):
        found |= {done | 1 << node for done in found if not before[node] & ~done}
    return found


def _parts(done: int, legal: int, before: list[int], count: int) -> set[int]:
    """All sets of legal nodes that can run behind `done` as one region."""
    found = {0}
    for node in range(count):
        if legal >> node & 1 and not done >> node & 1:
            found |= {part | 1 << node for part in found if not before[node] & ~(done | part)}
    return found - {0}


def run_after_another(problem, region):
    """Check that regions and outside nodes can run one after the other: their dependence graph is acyclic."""
    count = max(region, default=OUTSIDE) + 1
    unit = [home if home != OUTSIDE else count + node for node, home in enumerate(region)]
    readers = {number: set() for number in unit}
    for node, producers in enumerate(problem.before):
        for producer in producers:
            if unit[producer] != unit[node]:
                readers[unit[producer]].add(unit[node])
    waiting = dict.fromkeys(readers, 0)
    for users in readers.values():
        for user in users:
            waiting[user] += 1
    ready, done = [number for number, left in waiting.items() if not left], 0
    while ready:
        done += 1
        for user in readers[ready.pop()]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return done == len(readers)
