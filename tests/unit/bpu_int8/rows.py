"""Nodes on both sides of every bound of a backend's file, made from its rows.

A limit is a term and a range. The search turns the knobs of the operator's sample until the backend accepts a node
whose term just lies in the range, and until it refuses one whose term just does not, for this limit alone.
"""

import itertools
import re
from functools import cache
from typing import NamedTuple

import onnx_ir as ir
from dovetail.passes import BackendChoice, Context, Request
from dovetail.plugin import load_plugins
from dovetail_schemas.node_view import BROADCASTING, NodeView
from dovetail_schemas.operators import known_names
from dovetail_schemas.terms import ABSENT, Mismatch, NameBinding, TermError, Unknown, parse_term

from . import samples

MARCHES = ("bernoulli2", "bayes", "nash")

STARTS = {
    "Conv": [{}, {"spatial": 3}],
    "Gemm": [{"transB": 1}, {"transB": 0}],
    "MatMul": [
        {},
        {"a": (1, 1), "b": (1, 1)},
        {"a": (), "b": "v"},
        {"a": (1, 2), "b": (1, 1), "A.constant": True, "B.constant": False},
        {"a": (1, 2), "b": (1, 1), "B.constant": False},
    ],
    "Gather": [{}, {"indices.constant": False, "indices": "int32"}],
    "ReduceMean": [{}, {"axes": (2, 3)}],
    **{kind: [{}, {"b": "23"}] for kind in ("Add", "Sum")},
    "Mul": [{}, {"b": "023"}, {"b": "0123"}],
    "Div": [{}, {"b": "023"}, {"b": "0123"}, {"b": "0123", "divides_by_number": True}],
    "Sigmoid": [{}, {"in_swish": True}],
    **{
        kind: [{"rank_after": 4}, {"rank_after": 4, "only_gemms_read": True}]
        for kind in ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
    },
    "Transpose": [{}, {"output_layout": True}],
}
"""Knobs from which the search for a row of an operator begins; the first that fits it is taken."""

HINTS = {
    ("ConvTranspose", "H"): {"SH": 1, "PT": 1, "PB": 1},
    ("ConvTranspose", "W"): {"SW": 1, "PL": 1, "PR": 1},
    ("ConvTranspose", "C*KH*KW"): {"KH": 6, "KW": 6},
    ("Conv", "M // group"): {"group": 2},
    ("Conv", "DH"): {"H": 16 * 17},
    ("Conv", "DW"): {"W": 16 * 17},
    ("Gather", "largest_size"): {"index_rank": 0},
    ("Tile", "largest_size"): {"changed_extents": 0},
    ("Gemm", "transA"): {"M": 4},
    ("Gemm", "K"): {"K": 0},
    ("Resize", "HO // H"): {"mode": "nearest", "WO": 64},
    ("Resize", "HO*W"): {"mode": "nearest"},
    ("Gemm", "max(image_height, image_width)"): {"K": 0},
    ("Gemm", "image_channels"): {"K": 0, "image_height": 2},
    ("Gemm", "image_height*image_width*image_channels"): {"K": 0},
    ("MatMul", "largest_size"): {"a": ("x",), "b": ("x",)},
    ("MatMul", "largest_size", "bayes", 0): {"b": ()},
    ("Split", "axis"): {"N": 2},
    ("LSTM", "layout"): {"T": 1},
    **{(kind, "broadcast_first_axis"): {"N": 2} for kind in ("Add", "Sum", "Mul", "Sub", "Div")},
}
"""Knobs beside those of the term without which no node breaks this limit alone."""

TURNS = {
    "strides": ("SH", "SW", "strides"),
    "dilations": ("DH", "DW", "dilations"),
    "pads": ("PT", "pads"),
    "first_extent": ("N", "rank", "a", "M"),
    "largest_extent": ("C", "H"),
    "largest_size": ("C", "H", "W", "Cg"),
    "MatMul.largest_size": ("batch", "M", "N"),
    "largest_matrix_extent": ("K", "M"),
    "largest_batch_extent": ("batch", "a", "b"),
    "same_ranks": ("a", "b"),
    "listed_broadcast": ("a", "b"),
    "merged_rank": ("rank", "a", "b"),
    "broadcast_first_axis": ("a", "b"),
    "broadcast_operands": ("a", "b"),
    "reduced_extent": ("C", "H"),
    "C": ("C", "Cg", "group", "image_channels"),
    "image_channels": ("K", "image_channels"),
    "output.is_output": ("is_output",),
    "Q": ("a",),
    "P": ("a",),
    "M": ("Mg", "group"),
    "K": ("image_channels", "image_height", "image_width"),
    "SH": ("SW",),
    "data.rank": ("index_rank",),
    "A.rank": ("b",),
    "HO": ("HO", "H"),
    "WO": ("WO", "W"),
}
"""Knobs that move a term in which a name stands, where no knob has that name."""

COARSE = {"C*KH*KW": 12}
"""Products of which the factors have small bounds: 65536 is taken, and next to it nothing that has such factors."""

CHOICES = {
    "a": {"MatMul": [(), (1,), (1, 1), (1, 2), (2, 3), (128, 1), (129, 1), ("x",), (1, 3), "v"]},
    "b": {"MatMul": [(), (1,), (1, 1), (2, 1), (1, 3), (2, 3), ("x",), (2,), "v"]},
    "axes": [(1,), (2, 3), (1, 2), (0,), (1, 2, 3)],
    "rank": range(0, 12),
    "rank_after": range(0, 12),
    "index_rank": range(0, 6),
    "spatial": [2],
}
_MASKS = ["", "1", "2", "13", "0", "12", "024"]
_NEGATIVE = re.compile(r"[PQBE][A-Z]|pads")
_MOST = 12_000


class Case(NamedTuple):
    """One limit of one row of one operator."""

    march: str
    kind: str
    row: int
    block: int
    limit: int

    def __str__(self):
        limit = limit_of(self)
        return f"{self.march}-{self.kind}-{self.row}-{limit}-{limit.source.rpartition(':')[2]}"


class Found(NamedTuple):
    """A node, by its knobs, with what the backend said of it and the value of the term."""

    knobs: dict
    last: bool
    value: object
    verdict: object


@cache
def backend(march):
    request = Request(backends=(BackendChoice("bpu-int8", {"march": march}),))
    return Context(request, plugins=load_plugins()).backends[0]


@cache
def judge(march):
    facts = load_plugins().registry.fact
    return backend(march).judge({"": samples.OPSET}, {name: facts[name] for name in backend(march).facts})


def rule(march, kind):
    return backend(march).rule("", kind)


def limit_of(case):
    return rule(case.march, case.kind).rows[case.row].blocks[case.block].limits[case.limit]


def taken():
    """The operators that the file takes, by march; of those of a later march, only what the earlier ones have not."""
    seen = set()
    for march in MARCHES:
        for domain, kind in backend(march).listed():
            found = backend(march).rule(domain, kind)
            if found.status == "ok" and (kind, found.rows[0].source, found.source) not in seen:
                seen.add((kind, found.rows[0].source, found.source))
                yield march, kind


def cases():
    """Every limit of every row."""
    for march, kind in taken():
        for row, content in enumerate(rule(march, kind).rows):
            for block, part in enumerate(content.blocks):
                yield from (Case(march, kind, row, block, i) for i in range(len(part.limits)))


def judged(march, kind, knobs, last):
    node = samples.sample(kind, knobs)
    return node, judge(march)(node, {"last": last})


@cache
def start(march, kind, row):
    """Knobs of a node that the row accepts, and whether it is the last of its region."""
    several = len(rule(march, kind).rows) > 1
    for knobs in STARTS.get(kind, [{}]):
        verdict = judged(march, kind, knobs, False)[1]
        if verdict.ok and (verdict.row == row or not several):
            return knobs
    raise LookupError(f"no sample of {kind} fits row {row} of {march}: {verdict.reasons}")


class Environment(dict):
    """The names of a row's limits for one node."""

    def __init__(self, row, node, march, last):
        facts = judge(march)._facts
        self.view = NodeView(node, samples.OPSET, {}, facts, {"last": last})
        binding = NameBinding()
        for pattern in row.patterns:
            extents = self.view.extents(pattern.target)
            if extents is not ABSENT:
                binding.lay(pattern, extents, node.op_type in BROADCASTING)
        super().__init__(binding.values())

    def __missing__(self, name):
        return self.view[name]


def misfits(case_row):
    """Nodes whose shape differs from what the row says by one axis or one extent, with the pattern that they break.

    Args:
        case_row: March, operator and number of the row.
    """
    march, kind, index = case_row
    row, listed = rule(march, kind).rows[index], known_names("", kind).attributes
    for pattern in row.patterns:
        seen = {name for other in row.patterns[: row.patterns.index(pattern)] for name in other.names}
        for change in ("longer", "shorter", *range(len(pattern.tokens))):
            fixed = (
                change in ("longer", "shorter") or pattern.tokens[change].isdigit() or pattern.tokens[change] in seen
            )
            node = samples.sample(kind, start(march, kind, index))
            names = Environment(row, node, march, False)
            if not fixed or names.view.ports.get(pattern.target) is None or pattern.target in listed:
                continue
            value = names.view.ports[pattern.target]
            extents = list(value.shape)
            if change == "shorter" and kind in BROADCASTING:
                continue  # the leading extent that is missing is 1
            if change == "longer":
                extents = [2] * (len(pattern.tokens) + 1 - len(extents)) + extents
            elif change == "shorter":
                extents = extents[:-1]
            elif (at := change + len(extents) - len(pattern.tokens)) < 0:
                continue  # an extent of 1 that is not written
            else:
                extents[at] += 1
            value.shape = ir.Shape(extents)
            yield pattern, node


def search(case):
    """The node that keeps a limit and the one that breaks it, as close to its bounds as the knobs allow.

    Returns:
        By side (`low`, `high`, or nothing for what is no interval): the kept node and the broken one, or None.
    """
    limit, march = limit_of(case), case.march
    row = rule(march, case.kind).rows[case.row]
    hints = HINTS.get((case.kind, limit.term.text), {}) | HINTS.get((case.kind, limit.term.text, march, case.row), {})
    block, base = row.blocks[case.block], start(march, case.kind, case.row) | hints
    sides = _sides(limit)
    found = {side: {"kept": None, "broken": None} for side in sides}
    for knobs, last in _turned(case, limit, block, row, base):
        try:
            node, verdict = judged(march, case.kind, knobs, last)
            names = Environment(row, node, march, last)
            if block.when.check(names) is not True or row.when.check(names) is not True:
                continue
            value = limit.term(names)
            holds = limit.range.holds(value, names)
        except (ArithmeticError, Mismatch, TermError, ValueError, TypeError, IndexError):
            continue
        if isinstance(value, Unknown) or value is ABSENT or isinstance(holds, Unknown):
            continue
        for side in sides:
            _keep(found[side], side, limit, names, Found(knobs, last, value, verdict), holds, case)
        if all(_exact(found[side], limit, side) for side in sides):
            break
    return {side: (both["kept"], both["broken"]) for side, both in found.items()}


def _sides(limit):
    low, dots, high = limit.range.text.partition("..")
    if not dots or limit.range.text.startswith("["):
        return ("",)
    return tuple(side for side, end in (("low", low), ("high", high)) if end.strip())


def _keep(both, side, limit, names, found, holds, case):
    several = len(rule(case.march, case.kind).rows) > 1
    if holds:
        accepted = found.verdict.ok and (not several or found.verdict.row == case.row)
        best = both["kept"]
        if accepted and (best is None or _beyond(found.value, best.value, side, 1)):
            both["kept"] = found
        return
    if side and _other_side(found.value, limit, names, side):
        return
    own = [r for r in found.verdict.reasons if r.source == limit.source and f"{limit.term.text} = " in r.text]
    best = both["broken"]
    alone = found.verdict.ok is False and own and len(found.verdict.reasons) == 1
    if alone and (best is None or _beyond(found.value, best.value, side, -1)):
        both["broken"] = found


def _beyond(value, other, side, sign):
    """Whether a value lies nearer to the bound than another one of its side of it."""
    if not side:
        return False  # the first one is as good as any
    one, two = _number(value, side), _number(other, side)
    return sign * (one - two) * (1 if side == "high" else -1) > 0


def _number(value, side):
    return (max if side == "high" else min)(value) if isinstance(value, tuple) else value


def _other_side(value, limit, names, side):
    """Whether a value is outside because of the other end."""
    low, _, high = limit.range.text.partition("..")
    end = parse_term((high if side == "high" else low).strip())(names)
    return not (_number(value, side) > end if side == "high" else _number(value, side) < end)


def _exact(both, limit, side):
    kept, broken = both["kept"], both["broken"]
    if kept is None or broken is None:
        return False
    return not side or gap(kept, broken, side) <= tolerance(limit, kept)


def tolerance(limit, kept):
    """How far apart they may be: products do not take every value, and large ones few that have small factors."""
    large = kept.value if isinstance(kept.value, int) else 0
    if limit.term.text in COARSE:
        return large // COARSE[limit.term.text]
    return (large // 100 if large > 1 << 20 else max(2, large // 1000)) if limit.term.is_name else max(4, large // 100)


def gap(kept, broken, side):
    """How far apart the terms of the two nodes are."""
    return abs(_number(kept.value, side) - _number(broken.value, side))


def _turned(case, limit, block, row, base):
    """Knobs to try, the likely ones first, each with whether the node is the last of its region."""
    usual = samples.SAMPLES[case.kind][1] | base
    wanted = [*_turns(case.kind, limit.names, usual)]
    guards = [knob for knob in _turns(case.kind, block.when.names, usual) if knob not in wanted]
    lasts = [True, False] if any("region.last" in part.when.names for part in row.blocks) else [False]
    ends = _ends(limit, case, row, base)
    values = {knob: _values(knob, case, usual, ends, limit.range.text) for knob in wanted}
    guarded = {knob: _values(knob, case, usual, _ends_of_guards(block), str(block.when)) for knob in guards}
    tried = 0
    for first in ((), *itertools.product(*guarded.values())):
        fixed = base | dict(zip(guarded, first))
        for knobs in _combinations(wanted, values, ends, fixed, usual):
            for last in lasts:
                yield knobs, last
                tried += 1
            if tried > _MOST:
                return


def _combinations(wanted, values, ends, fixed, usual):
    yield fixed
    for knob in wanted:
        for value in values[knob]:
            yield fixed | {knob: value}
    numbers = [knob for knob in wanted if type(usual[knob]) is int and knob not in CHOICES]
    for count in (2, 3):
        for chosen in itertools.combinations(numbers, count):
            for end in ends:
                for step in (0, 1, None, 2, -1, *range(3, 9)) if end > 8 else ():
                    for factors in _factors(end + (step or 0), count):
                        if step is not None:
                            yield fixed | dict(zip(chosen, factors))
                            continue
                        for i in range(count):  # a little more than the end, where the next number has no such factors
                            yield fixed | dict(zip(chosen, (n + (i == j) for j, n in enumerate(factors))))
    for count in (2, 3):
        for chosen in itertools.combinations(wanted, count):
            for given in itertools.product(*(values[knob] for knob in chosen)):
                yield fixed | dict(zip(chosen, given))


def _turns(kind, names, usual):
    found = []
    for name in names:
        port, dot, fact = name.partition(".")
        if name in usual:
            found.append(name)
        if dot and fact == "rank":
            found += [knob for knob in ("rank_after" if port in ("output", "out0") else "rank", "index_rank") if
                      knob in usual and (knob != "index_rank" or port == "indices")]  # fmt: skip
            found += [{"A": "a", "B": "b"}[port]] if "batch" in usual and port in "AB" else []
            found += ["rank"] if port in ("output", "out0") and "rank_after" not in usual else []
        for knob in TURNS.get(f"{kind}.{name}", TURNS.get(name, ())):
            if knob in usual:
                found.append(knob)
    return list(dict.fromkeys(found))


def _values(knob, case, usual, ends, text):
    known = CHOICES.get(knob)
    if knob in ("a", "b"):
        return known.get(case.kind, _MASKS)
    if known is not None:
        return list(known)
    if isinstance(usual[knob], bool):
        return [True, False]
    if isinstance(usual[knob], str):
        return [*re.findall(r"[A-Za-z_0-9]+", text), "other"]
    numbers = {0, 1, 2, 3, 4, 5, 7, 8}
    for end in ends:
        numbers |= {end + step for step in (-1, 0, 1)}
        numbers |= {end // part + step for part in (2, 4, 8, 16, 32, 64) for step in (0, 1)}
        numbers |= {(end + step) * 2 for step in (0, 1)}
    return [n for n in sorted(numbers) if n >= 0 or _NEGATIVE.fullmatch(knob)]


def _ends(limit, case, row, base):
    """The whole numbers at the ends of a range; terms there are those of the node that the search begins with."""
    node, _ = judged(case.march, case.kind, base, False)
    names, found = Environment(row, node, case.march, False), []
    for text in re.split(r"\.\.|[\[\],=]", limit.range.text):
        try:
            end = parse_term(text.strip())(names) if text.strip() else None
        except Exception:  # noqa: BLE001 - a word
            continue
        found += [int(end)] if isinstance(end, (int, float)) and not isinstance(end, bool) else []
    return found


def _ends_of_guards(block):
    return [int(n) for limit in block.when.limits for n in re.findall(r"\d+", limit.range.text)]


@cache
def _factors(number, count):
    """Ways to write a number as a product, each factor at most 65536."""
    if count == 1:
        return [(number,)] if number <= 65536 else []
    divisors = [n for n in range(1, min(number, 65536) + 1) if number % n == 0]
    found = [(n, *rest) for n in divisors for rest in _factors(number // n, count - 1)]
    return sorted(found, key=max)[:200]
