"""Seeded random models that are called again and again: loops and branches that inputs control, and wide integers.

Trip counts and conditions are constants, inputs or computed; extents change from call to call; integers of shapes are
multiplied, added and compared with numbers on both sides of 2^24 and 2^31. A model is made from a seed alone.
"""

from dataclasses import dataclass

import numpy as np
import onnx

from .grown import run

HEAD = """<ir_version: 8, opset_import: ["": 18]>
g (float[N,4] x, int64 n, bool go, float[Q,3] q, int64[3] ids, int32[3] narrow) => ({outputs}) <
  float[4,4] w = {{{matrix}}}, float[4] b = {{0.1, -0.2, 0.3, -0.4}}, float half = {{0.5}}, float[4] start = {{0, 0.1, 0, 0.2}},
  int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}}, int64 five = {{5}}, int64 minus = {{-1}},
  int64 huge = {{9223372036854775807}}, int64[1] first = {{0}}, int64[1] second = {{1}}, bool yes = {{1}}, bool no = {{0}}{constants}> {{
  {text} }}"""  # noqa: E501
NUMBERS = (1, 2, 3, 7, 1000, 2**24 - 1, 2**24 + 1, 2**31 - 1, 2**31, 2**33 + 5, 2**40)
CALLS = ((2, 2), (0, 1), (3, 3), (1, 2), (-1, 1), (0, 3), (2, 1))  # n, and the rows of x


@dataclass(frozen=True)
class Called:
    """A model, and the inputs of one call after the other."""

    seed: int
    model: onnx.ModelProto
    calls: tuple[dict[str, np.ndarray], ...]


class Writer:
    """Text of a graph that grows by steps; `floats` have the shape of `x`, `counts` are scalars of int64."""

    def __init__(self, rng):
        self.rng = rng
        self.lines, self.constants, self.outputs = [], {}, []
        self.floats, self.counts, self.conditions = ["m"], ["n"], ["go"]
        self.depth, self._fresh = 0, 0

    def pick(self, names):
        return str(self.rng.choice(list(names)))

    def name(self, stem):
        self._fresh += 1
        return f"{stem}_{self._fresh}"

    def number(self):
        value = int(self.rng.choice(NUMBERS)) * int(self.rng.choice([1, 1, 1, -1]))
        name = f"k_{str(value).replace('-', 'm')}"
        self.constants[name] = value
        return name

    def compute(self, lines=None):
        """A float in the shape of x."""
        lines, made = self.lines if lines is None else lines, self.name("f")
        one, other = self.pick(self.floats), self.pick(self.floats)
        text = self.pick([f"Tanh({one})", f"Sigmoid({one})", f"Mul({one}, half)", f"Add({one}, b)",
                          f"MatMul({one}, w)", f"Sub({one}, {other})", f"Max({one}, {other})"])  # fmt: skip
        inner = self.name("g")
        lines += [f"{inner} = {text}", f"{made} = Tanh({inner})"]
        return made

    def count(self):
        """A scalar of int64, of an extent or of another one."""
        made, kind = self.name("c"), int(self.rng.integers(5))
        if kind == 0:
            shape = self.name("s")
            source, at = self.pick([*self.floats, "q"]), self.pick(["zero", "one"])
            self.lines += [f"{shape} = Shape({source})", f"{made} = Gather({shape}, {at})"]
        elif kind == 1:
            self.lines.append(f"{made} = Size({self.pick([*self.floats, 'q'])})")
        elif kind == 2 and len(self.counts) > 1:
            condition = self.pick([*self.conditions, "yes"])
            self.lines.append(f"{made} = Where({condition}, {self.pick(self.counts)}, {self.number()})")
        else:
            operator = self.pick(["Add", "Sub", "Mul", "Min", "Max", "Div", "Mod"])
            self.lines.append(f"{made} = {operator}({self.pick(self.counts)}, {self.number()})")
        self.counts.append(made)

    def compare(self):
        made, operator = self.name("t"), self.pick(["Less", "Greater", "Equal"])
        self.lines.append(f"{made} = {operator}({self.pick(self.counts)}, {self.pick([self.number(), 'one'])})")
        self.conditions.append(made)

    def give_numbers(self):
        """Integers of a vector, in 64 or 32 bits."""
        made, cast = self.name("v"), self.name("v")
        operator = self.pick(["Add", "Mul", "Div", "Mod", "Max", "Equal", "Less"])
        self.lines += [f"{made} = {operator}(ids, {self.number()})", f"{cast} = Cast<to = 7>({made})"]
        self.outputs.append(cast)
        small = self.name("v")
        self.lines.append(f"{small} = {self.pick(['Abs(narrow)', 'ReduceMax(narrow)', 'Relu(narrow)', 'Neg(narrow)'])}")
        self.outputs.append(small)

    def rows(self):
        """Rows that a count chooses, 0 to 3 of them."""
        low, high, made = self.name("c"), self.name("c"), self.name("r")
        ends = self.name("e")
        self.lines += [f"{low} = Max({self.pick(self.counts)}, zero)", f"{high} = Min({low}, three)",
                       f"{ends} = Unsqueeze({high}, first)",
                       f"{made} = Slice({self.pick(self.floats)}, first, {ends}, first)"]  # fmt: skip
        self.outputs.append(made)

    def branch(self, lines=None):
        lines, made = self.lines if lines is None else lines, self.name("f")
        bodies = []
        for part in ("then", "else"):
            inner, known = [], list(self.floats)
            end = (
                self.loop(inner, collects=False) if self.depth < 2 and self.rng.random() < 0.3 else self.compute(inner)
            )
            self.floats = known
            bodies.append(f"{part}_branch = {self.name('br')} () => (float[N,4] {end}) {{ {' '.join(inner)} }}")
        condition = self.pick([*self.conditions, *(["yes", "no"] if self.rng.random() < 0.2 else [])])
        lines.append(f"{made} = If({condition}) <{', '.join(bodies)}>")
        return made

    def loop(self, lines=None, collects=True):
        """A Loop, sometimes in another one; its scan outputs are outputs of the model."""
        main, lines = lines is None, self.lines if lines is None else lines
        self.depth += 1
        trips = self.pick(["three", "three", "one", "zero", "n", "huge", "limited", "rows"])
        if trips in ("limited", "rows"):
            name, source = self.name("c"), self.pick(self.counts)
            inner = "q" if trips == "rows" else None
            if inner:
                lines += [f"{name}s = Shape(q)", f"{name} = Gather({name}s, zero)"]
            else:
                lines.append(f"{name} = Min({source}, three)")
            trips = name
        condition = self.pick(["", "", "yes", "no", *self.conditions])
        i, go, state, on = (self.name(stem) for stem in ("i", "go", "st", "on"))
        known, self.floats = list(self.floats), [*self.floats, state]
        body = []
        goes = f"Less({i}, {self.pick(['two', 'one', 'zero', 'five'])})"
        body.append(f"{on} = {goes if trips in ('huge', 'n') or self.rng.random() < 0.3 else f'Identity({go})'}")
        nested = self.depth < 2 and self.rng.random() < 0.3
        end = self.loop(body, collects=False) if nested else self.compute(body)
        self.floats = [*self.floats, end]
        scans = [self.compute(body) for _ in range(int(self.rng.integers(0, 3)) if collects else 0)]
        self.floats, made = known, self.name("f")
        collected = [self.name("all") for _ in scans]
        results = ", ".join([f"bool {on}", f"float[N,4] {end}", *(f"float[N,4] {scan}" for scan in scans)])
        outputs = ", ".join([made, *collected])
        lines.append(
            f"{outputs} = Loop({trips}, {condition}, {self.pick(known)}) <body = {self.name('b')} "
            f"(int64 {i}, bool {go}, float[N,4] {state}) => ({results}) {{ {' '.join(body)} }}>"
        )
        if main:
            self.outputs += collected
        self.depth -= 1
        return made

    def scan(self):
        made, end = self.name("z"), self.name("z")
        self.lines.append(
            f"{end}, {made} = Scan<num_scan_inputs = 1, body = {self.name('b')} (float[4] {end}s, float[4] {end}r) => "
            f"(float[4] {end}u, float[4] {end}o) {{ {end}u = Add({end}s, {end}r) {end}o = Tanh({end}u) }}>"
            f"(start, {self.pick(self.floats)})"
        )
        self.outputs += [made, end]


def called(seed):
    """The model of this seed, with its calls."""
    for attempt in range(20):
        model, calls = _attempt(np.random.default_rng([seed, 44, attempt]))
        try:
            for feeds in calls:
                run(model, feeds)
        except Exception:
            continue
        return Called(seed, model, calls)
    raise AssertionError(f"seed {seed} gives no model that ONNX Runtime runs")


def _attempt(rng):
    writer = Writer(rng)
    writer.lines.append("m = MatMul(x, w)")
    steps = {
        "compute": 2,
        "count": 3,
        "compare": 1,
        "give_numbers": 0.4,
        "rows": 0.7,
        "branch": 1,
        "loop": 3,
        "scan": 0.4,
    }
    shares = np.array(list(steps.values())) / sum(steps.values())
    for step in rng.choice(list(steps), int(rng.integers(3, 10)), p=shares):
        made = getattr(writer, str(step))()
        if made is not None:
            writer.floats.append(made)
    outputs = [*writer.floats[-2:], *writer.counts[-2:], *writer.outputs]
    writer.lines += [f"y_{at} = Identity({name})" for at, name in enumerate(outputs)]
    matrix = (rng.standard_normal(16) * 0.4).round(3)
    text = HEAD.format(
        outputs=", ".join(f"y_{at}" for at in range(len(outputs))), text=" ".join(writer.lines),
        matrix=", ".join(map(str, matrix)),
        constants="".join(f", int64 {name} = {{{value}}}" for name, value in writer.constants.items()),
    )  # fmt: skip
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    used = {name for node in model.graph.node for name in _read(node)}
    for holder in (model.graph.input, model.graph.initializer):
        for value in [value for value in holder if value.name not in used]:
            holder.remove(value)
    calls = []
    for trips, rows in CALLS:
        feeds = {
            "x": rng.standard_normal((rows, 4)).astype(np.float32), "n": np.array(trips), "go": np.array(trips > 0),
            "q": np.zeros((max(trips, 0), 3), np.float32), "ids": rng.integers(-(2**40), 2**40, 3),
            "narrow": rng.integers(-(2**30), 2**30, 3).astype(np.int32),
        }  # fmt: skip
        calls.append({value.name: feeds[value.name] for value in model.graph.input})
    return model, tuple(calls)


def _read(node):
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _read(inner)
            yield from (value.name for value in attribute.g.output)
