"""What is wrong with the reasons that a plan gives: those that are missing, and those that the plan contradicts."""

import re

from dovetail.compiler import Driver
from dovetail.passes import Context, Request
from dovetail.planning import HOST
from dovetail_placement.legality import Judges

REFUSED = ("missed", "failed")


def wrong_reasons(model, backends, plugins, **request):
    """Decide on a model, and return a sentence for each reason that is missing or false."""
    ctx = Context(Request.of(*backends, **request), plugins=plugins)
    decided, plan = Driver(model, ctx).decide()
    return [*missing(plan), *contradicted(plan), *miscounted(plan), *lawful(decided, plan, ctx)]


def owners(plan):
    """The rank of each backend: the first is preferred to all others, and the host comes last."""
    return {name: rank for rank, name in enumerate([*(one.name for one in plan.backends if one.name != HOST), HOST])}


def missing(plan):
    """Nodes that a preferred backend does not have, for no reason."""
    ranks, said = owners(plan), {(one.node, one.backend) for one in plan.remarks if one.kind in REFUSED}
    pinned = {one.node for one in plan.remarks if one.rule == "pinned"}
    for node in plan.nodes:
        for name, rank in ranks.items():
            if rank < ranks[node.backend] and node.name not in pinned and (node.name, name) not in said:
                yield f"nothing says why '{node.name}' ({node.operator}) on {node.backend} is not on {name}"


def contradicted(plan):
    """Reasons why a node is not on the backend that has it, and causes that the plan does not know."""
    where = {node.name: node.backend for node in plan.nodes}
    for one in plan.remarks:
        if one.kind in REFUSED and one.backend and not one.format and where.get(one.node) == one.backend:
            yield f"'{one.node}' is on {one.backend}, and a remark says: {one.why}"
        if one.rule == "in-body" and not any(where.get(name) != one.backend for name in one.because):
            yield f"'{one.node}' is said to follow {one.because}, which are on {one.backend}"


def miscounted(plan):
    """Numbers and orders in remarks on the whole model that are not those of the plan."""
    ranks, total = owners(plan), len(plan.nodes)
    has = {name: sum(node.backend == name for node in plan.nodes) for name in ranks}
    for one in plan.remarks:
        name = one.facts.get("backend", "") if one.rule in ("no-nodes", "nothing-left") else ""
        if name and has[name]:
            yield f"{name} has {has[name]} nodes, and a remark says: {one.why}"
        for other in one.facts.get("behind", ()) if name else ():
            if ranks[other] >= ranks[name]:
                yield f"{other} is not before {name}: {one.why}"
        if name:
            yield from (f"more than {total} nodes: {one.why}" for n in re.findall(r"(\d+) nodes?\b", one.why)
                        if int(n) > total)  # fmt: skip
        for number, of, name in re.findall(r"(\d+) of (\d+) nodes? (?:is|are) not on (\S+) because", one.why):
            if int(of) != total or not 0 < int(number) <= total - has[name]:
                yield f"{total - has[name]} of {total} nodes are not on {name}: {one.why}"


def lawful(decided, plan, ctx):
    """Limits that remarks name although the file of the backend takes the node."""
    judges, nodes = ctx.analysis(Judges, decided), {node.name: node for node in decided.nodes()}
    for one in plan.remarks:
        backend = ctx.backend(one.backend)
        if one.rule != "not-supported" or backend is None:
            continue
        refused = [nodes[name] for name in (one.because or (one.node,)) if name in nodes]
        if not refused or any(judges.of(backend)(node).ok is not False for node in refused):
            yield f"{one.backend} takes {[node.name for node in refused]}, and a remark says: {one.why}"
