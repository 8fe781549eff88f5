"""Running original and result on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.text import pluralize
from dovetail_runtime.data.batches import batches
from dovetail_runtime.feeds import arrays_of

from dovetail_verify.metrics import Difference, Findings, Spread
from dovetail_verify.random_inputs import CANDIDATES, random_feeds, random_shapes

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model

    from dovetail_verify.accuracy.goals import Miss
    from dovetail_verify.layers import LayerErrors


POOR = 20.0  # dB; below, the noise has more than a tenth of the amplitude of the signal


def warning_of(output: OutputComparison) -> str:
    """What is alarming about an output, in one sentence; empty if nothing is, and of what is broken anyway."""
    if output.broken:
        return ""
    found = []
    if output.snr_db == -math.inf:
        found.append(f"the original is zero, the result differs from it by up to {output.max_abs:.3g}")
    elif output.snr_db is not None and output.snr_db < POOR:
        found.append(f"SNR {output.snr_db:.1f} dB, below {POOR:g} dB")
    if output.top1 is not None and output.top1 < 1:
        # Rows may be coordinates as well, of which the largest is no answer.
        what = "another answer" if output.answers else "another element is the largest"
        found.append(f"{what} in {100 * (1 - output.top1):.2f} % of the rows")
    if output.hits is not None and output.hits[1] < output.hits[0]:
        found.append(f"labels hit in {100 * output.hits[1]:.2f} % of the rows, {100 * output.hits[0]:.2f} % before")
    return f"'{output.name}': {', '.join(found)}" if found else ""


# Operators whose indices may come in another order and mean the same.
_FINDINGS: Mapping[str, Findings] = {"NonMaxSuppression": "rows", "TopK": "lists"}
Run = Callable[[Mapping[str, "np.ndarray"]], dict[str, "np.ndarray"]]


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """How well one output came out.

    Attributes:
        name: The output.
        snr_db: Signal to noise of a float output, None for indices.
        cosine: Cosine similarity of a float output, None for indices.
        max_abs: Largest difference of a float output, None for indices.
        top1: Share of rows of scores whose largest element is the same; None where there are no rows of scores.
        set_agreement: Of an index output, findings in both over findings in either; None for floats.
        equal: Share of elements that are exactly equal.
        hits: With labels, share of rows that original and result get right.
        non_finite: Elements that are not finite and not the same in both, or missing.
        shapes: The shapes of original and result where they differ.
        typical_snr_db: Signal to noise of a typical row of a float output, which a few changed answers do not decide;
            None for indices.
        answers: Whether rows are known to be scores of answers: they are shares, or labels say which is right.
    """

    name: str
    snr_db: float | None
    cosine: float | None
    max_abs: float | None
    top1: float | None
    set_agreement: float | None
    equal: float
    hits: tuple[float, float] | None = None
    non_finite: int = 0
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    typical_snr_db: float | None = None
    answers: bool = False

    @property
    def broken(self) -> bool:
        """Whether it is no approximation of the original: another shape, or infinities or NaNs of its own."""
        return self.non_finite > 0

    @property
    def snr_text(self) -> str:
        """The SNR in words: `41.2 dB`, `exact`, `broken`, or that there is no signal to compare noise with."""
        if self.broken:
            return "broken"
        if self.snr_db == -math.inf:
            return "none (the original is zero)"
        return "exact" if self.snr_db == math.inf else f"{self.snr_db:.1f} dB"

    def line(self) -> str:
        """One line for a person."""
        differ = (
            f"wrong shape: {list(self.shapes[1])}, the original gives {list(self.shapes[0])}" if self.shapes else ""
        )
        if self.set_agreement is not None:
            shares = 100 * self.set_agreement, 100 * self.equal
            line = f"{self.name}: {shares[0]:.1f} % of the findings agree, {shares[1]:.1f} % of the elements"
            return f"{line}; {differ}" if differ and self.broken else line
        if differ:
            return f"{self.name}: {differ}"
        parts = [f"SNR {self.snr_text}", f"cosine {self.cosine:.6f}", f"max abs {self.max_abs:.3g}"]
        if self.non_finite:
            are = "is" if self.non_finite == 1 else "are"
            parts.append(f"{pluralize(self.non_finite, 'element')} {are} infinite or no number, and not in both")
        if self.top1 is not None:
            parts.append(f"top-1 agreement {100 * self.top1:.2f} %")
        if self.hits is not None:
            parts.append(f"top-1 on the labels {100 * self.hits[0]:.2f} % original, {100 * self.hits[1]:.2f} % result")
        return f"{self.name}: " + ", ".join(parts)


@dataclass
class Verification:
    """The comparison of all outputs.

    Attributes:
        outputs: One comparison per output.
        batches: How many runs they sum up.
        random: Whether the inputs were random for want of data.
        shapes: The shapes of random inputs, by name.
        missed: Outputs that do not meet an accuracy goal.
        remedy: What can be done about warnings, where the inputs were real; empty where nobody said.
        layers: The errors of all nodes, where somebody asked for them.
        cut: Which arrays of the data were run in parts, and why long ones were not.
        cautious: The outputs with the figures that a batch like those seen is unlikely to fall below; see `spread.py`.
        held_back: Of a search for a goal, what part of the data the figures are of, as a sentence.
    """

    outputs: list[OutputComparison] = field(default_factory=list)
    batches: int = 0
    random: bool = False
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    missed: list[Miss] = field(default_factory=list)
    remedy: str = ""
    layers: LayerErrors | None = None
    cut: list[str] = field(default_factory=list)
    cautious: list[OutputComparison] = field(default_factory=list)
    held_back: str = ""

    @property
    def advice(self) -> str:
        """What to do about the warnings."""
        return "measure on real inputs: --data FILE" if self.random else self.remedy

    @property
    def broken(self) -> bool:
        """Whether an output is no approximation of the original; commands then exit with 1."""
        return any(output.broken for output in self.outputs)

    @property
    def worst_snr_db(self) -> float | None:
        """The lowest SNR of any float output; None if there is none."""
        return min((output.snr_db for output in self.outputs if output.snr_db is not None), default=None)

    @property
    def warnings(self) -> list[str]:
        """What is alarming: outputs with an SNR below 20 dB, and answers that change."""
        return [text for text in map(warning_of, self.outputs) if text]

    @property
    def notes(self) -> list[str]:
        """What to know of the figures."""
        random = ["random inputs prove little about real ones; --data measures on those"] if self.random else []
        return [*random, *([self.held_back] if self.held_back else []), *self.cut]

    def as_dict(self) -> dict[str, Any]:
        """Plain data; infinite SNRs are words, which JSON can hold."""
        outputs = []
        for output in self.outputs:
            data = {name: getattr(output, name) for name in output.__slots__}
            for key in ("snr_db", "typical_snr_db"):
                if data[key] is not None and math.isinf(data[key]):
                    data[key] = "inf" if data[key] > 0 else "-inf"
            outputs.append(data)
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {"batches": self.batches, "random": self.random, "input_shapes": shapes, "broken": self.broken,
                "outputs": outputs, "missed": list(map(str, self.missed)), "warnings": self.warnings,
                **({"layers": self.layers.as_dict()} if self.layers is not None else {})}  # fmt: skip

    def lines(self) -> list[str]:
        """Lines for a person: what was run, then one line per output."""
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in self.shapes.items())
        source = f"one batch of random inputs ({shapes})" if self.random else pluralize(self.batches, "batch")
        worst = f"worst layer by {self.layers.by}: {self.layers.worst}" if self.layers is not None else ""
        return [
            f"verified on {source}:",
            *(f"  {output.line()}" for output in self.outputs),
            *([worst] if worst else ()),
        ]

    def short(self) -> str:
        """What the coverage line says."""
        rated = [output for output in self.outputs if output.snr_db is not None]
        if not rated:
            return ""
        worst = min(rated, key=lambda output: cast("float", output.snr_db))
        line = f"SNR {worst.snr_text}" + (f" (worst: '{worst.name}')" if len(rated) > 1 else "")
        return f"{line}; {pluralize(len(self.warnings), 'warning')}" if self.warnings else line


def verify(
    model: Model,
    original: Run,
    result: Run,
    data: object = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    made: Model | None = None,
) -> Verification:
    """Run both on every batch of `data` and compare all outputs.

    Args:
        model: The original, for its inputs.
        original: Runs the original.
        result: Runs the result.
        data: See `dovetail_runtime.data.batches.batches`.
        seed: For random inputs, where there is no data.
        progress: Told after every batch.
        shapes: Shapes of random inputs, by name, where the model leaves them open.
        made: The model of the result, whose inputs may have fixed shapes where those of the original are open.

    Raises:
        DovetailError: The data holds nothing, or one of both cannot be run.
    """
    sums: dict[str, Difference] = {}
    tried: dict[str, tuple[int, ...]] = {}
    cut: list[str] = []
    if data is None:
        tried, feeds, ours = _random_run(model, original, seed, {**_fixed(made), **(shapes or {})})
        runs: Iterable = [(feeds, {}, ours)]
    else:
        samples = batches(model, data, made, original, say=cut.append)
        runs = ((feeds, labels, original(feeds)) for feeds, labels in samples)
    count = 0
    spread: dict[str, Spread] = {}
    findings = {
        name_of(v): _FINDINGS.get(node.op_type, "places") for v in model.graph.outputs if (node := v.producer())
    }
    for count, (feeds, labels, ours) in enumerate(runs, start=1):
        theirs = result(feeds)
        for position, (output, value) in enumerate(ours.items()):
            truth = labels.get(output, labels.get("") if position == 0 else None)
            given = arrays_of(output, theirs.get(output))
            for name, array in arrays_of(output, value).items():
                total = sums.setdefault(name, Difference())
                if name in given:
                    total.add(array, given[name], truth, findings.get(output, "places"))
                else:
                    total.broken += max(array.size, 1)
                spread.setdefault(name, Spread()).add(total)
        if progress:
            progress("verify", count, 0)
    if not count:
        raise DovetailError("the data holds no batch, so nothing was verified", "give at least one sample")
    outputs = [_comparison(name, total) for name, total in sums.items()]
    cautious = [spread[output.name].applied(output) for output in outputs]
    return Verification(outputs, count, data is None, tried, cut=cut, cautious=cautious)


def _fixed(made: Model | None) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that are numbers alone."""
    shapes = {name_of(value): value.shape for value in made.graph.inputs} if made is not None else {}
    return {
        name: shape.numpy()
        for name, shape in shapes.items()
        if shape is not None and all(isinstance(extent, int) and extent >= 0 for extent in shape)
    }


def _random_run(
    model: Model, original: Run, seed: int, given: Mapping[str, Sequence[int]]
) -> tuple[dict[str, tuple[int, ...]], Mapping[str, np.ndarray], dict[str, np.ndarray]]:
    """Random inputs that the original takes, and what it computes of them.

    What a model leaves open it may still demand (a picture of at least 32 by 32, say), so a few extents are tried.
    """
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    for name in given.keys() - {value.name for value in inputs}:
        known = ", ".join(map(name_of, inputs)) or "none"
        raise DovetailError(f"a shape is given for '{name}', which is no input", f"inputs: {known}")
    refused: dict[tuple, DovetailError] = {}
    for candidate in CANDIDATES:
        shapes = random_shapes(inputs, given, candidate)
        key = tuple(shapes.values())
        if key in refused:
            continue
        feeds = random_feeds(inputs, shapes, seed)
        try:
            return shapes, feeds, original(feeds)
        except DovetailError as error:
            refused[key] = error
    first = next(iter(refused.values()))
    hint = "say which shapes it takes with --input-shapes NAME:1x3x224x224, or give --data"
    raise DovetailError(f"the original does not run on random inputs: {first.message}", hint)


def _comparison(name: str, total: Difference) -> OutputComparison:
    exact = total.union > 0 or not (total.signal or total.noise or total.broken or total.elements)
    equal = total.equal / total.elements if total.elements else 1.0
    if exact:
        agreement = total.shared / total.union if total.union else 1.0
        return OutputComparison(name, None, None, None, None, agreement, equal, None, total.broken, total.shapes)
    return OutputComparison(
        name,
        total.snr_db,
        total.cosine,
        total.max_abs,
        total.same_top / total.rows if total.rows else None,
        None,
        equal,
        (total.hits[0] / total.labeled, total.hits[1] / total.labeled) if total.labeled else None,
        total.broken,
        total.shapes,
        total.typical_snr_db,
        bool(total.margin_signal or total.labeled),
    )
