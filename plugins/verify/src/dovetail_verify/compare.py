"""Comparison of original and result on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.text import pluralize
from dovetail_runtime.data.batches import batches
from dovetail_runtime.feeds import arrays_of, given_inputs
from dovetail_transforms.canonicalize.random_values import random_outputs

from dovetail_verify.metrics import Difference, Findings, Spread
from dovetail_verify.random_inputs import CANDIDATES, random_feeds, random_shapes

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model

    from dovetail_verify.accuracy.goals import Miss
    from dovetail_verify.layers import LayerErrors


POOR = 20.0  # dB; below this, the noise amplitude exceeds a tenth of the signal's


def warning_of(output: OutputComparison) -> str:
    """Return a one-sentence warning about an output; empty if it is fine, or broken and reported elsewhere."""
    if output.broken:
        return ""
    found = []
    if output.snr_db == -math.inf:
        found.append(f"the original is zero, the result differs from it by up to {output.max_abs:.3g}")
    elif output.snr_db is not None and output.snr_db < POOR:
        found.append(f"SNR {output.snr_db:.1f} dB, below {POOR:g} dB")
    if output.top1 is not None and output.top1 < 1:
        # Rows may also be coordinates, whose largest element is not an answer.
        what = "another answer" if output.answers else "another element is the largest"
        found.append(f"{what} in {100 * (1 - output.top1):.2f} % of the rows")
    if output.hits is not None and output.hits[1] < output.hits[0]:
        found.append(f"labels hit in {100 * output.hits[1]:.2f} % of the rows, {100 * output.hits[0]:.2f} % before")
    return f"'{output.name}': {', '.join(found)}" if found else ""


# Operators whose indices may be reordered without changing the meaning.
_FINDINGS: Mapping[str, Findings] = {"NonMaxSuppression": "rows", "TopK": "lists"}
Run = Callable[[Mapping[str, "np.ndarray"]], dict[str, "np.ndarray"]]


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Comparison of one output.

    Attributes:
        name: The output's name.
        snr_db: Signal-to-noise ratio of a float output; None for indices.
        cosine: Cosine similarity of a float output, None for indices.
        max_abs: Largest difference of a float output, None for indices.
        top1: Fraction of rows of scores whose largest element is the same; None without rows of scores.
        set_agreement: Of an index output, findings in both over findings in either; None for floats.
        equal: Fraction of elements that are exactly equal.
        hits: With labels, the accuracy of original and result.
        non_finite: Count of elements that are nonfinite and different, or missing.
        shapes: The shapes of original and result if they differ.
        typical_snr_db: Signal-to-noise ratio of a typical row of a float output, robust against a few changed answers;
            None for indices.
        answers: Whether rows are known to be scores of answers: they are probabilities, or there are labels.
        kl: Mean divergence of rows of logits or probabilities, in nats; None for outputs of other ranks than 2 and 3.
        drawn_by: The node whose random numbers it depends on, in words; empty for an output that does not depend on
            any. Numbers of a random output are not compared: the original differs from itself in them.
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
    kl: float | None = None
    drawn_by: str = ""

    def drawn(self, by: str) -> OutputComparison:
        """Return the comparison of a random output: of its shape alone; itself if nothing draws random numbers."""
        broken = self.non_finite if self.shapes else 0
        none = (None, None, None, None, None, 0.0, None)
        return OutputComparison(self.name, *none, broken, self.shapes, drawn_by=by) if by else self

    @property
    def broken(self) -> bool:
        """Whether the output is not an approximation of the original: another shape, or its own infinities or NaNs."""
        return self.non_finite > 0

    @property
    def snr_text(self) -> str:
        """The SNR in words: `41.2 dB`, `exact`, `broken`, or that the original has no signal."""
        if self.broken:
            return "broken"
        if self.snr_db == -math.inf:
            return "none (the original is zero)"
        return "exact" if self.snr_db == math.inf else f"{self.snr_db:.1f} dB"

    def line(self) -> str:
        """Return a one-line summary."""
        differ = (
            f"wrong shape: {list(self.shapes[1])}, the original gives {list(self.shapes[0])}" if self.shapes else ""
        )
        if self.drawn_by:
            return f"{self.name}: random, because {self.drawn_by} has no seed{'; ' * bool(differ)}{differ}"
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
    """Comparison of all outputs.

    Attributes:
        outputs: One comparison per output.
        batches: Number of batches.
        random: Whether the inputs were random for lack of data.
        shapes: The shapes of random inputs, by name.
        missed: Outputs that do not meet an accuracy goal.
        remedy: Advice about warnings on real inputs, or empty.
        layers: The errors of all nodes, if requested.
        cut: Messages about arrays that were split, or why long ones were not.
        cautious: The outputs with figures that a similar batch is unlikely to fall below; see `Spread`.
        held_back: After a search, the part of the data that the figures cover, as a sentence.
        doubts: What labels say against a goal, as sentences.
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
    doubts: list[str] = field(default_factory=list)

    @property
    def advice(self) -> str:
        """Advice about the warnings."""
        return "measure on real inputs: --data FILE" if self.random else self.remedy

    @property
    def broken(self) -> bool:
        """Whether any output is not an approximation of the original; commands then exit with 1."""
        return any(output.broken for output in self.outputs)

    @property
    def worst_snr_db(self) -> float | None:
        """Lowest SNR of any float output; None if there is none."""
        return min((output.snr_db for output in self.outputs if output.snr_db is not None), default=None)

    @property
    def warnings(self) -> list[str]:
        """Warnings about outputs with an SNR below 20 dB, and about changed answers."""
        return [text for text in map(warning_of, self.outputs) if text]

    @property
    def notes(self) -> list[str]:
        """Caveats about the figures."""
        random = ["random inputs prove little about real ones; --data measures on those"] if self.random else []
        return [*random, *([self.held_back] if self.held_back else []), *self.doubts, *self.cut]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; infinite SNRs become strings, because JSON has no infinity."""
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
        """Return report lines: the inputs, then one line per output."""
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in self.shapes.items())
        source = f"one batch of random inputs ({shapes})" if self.random else pluralize(self.batches, "batch")
        worst = f"worst layer by {self.layers.by}: {self.layers.worst}" if self.layers is not None else ""
        return [
            f"verified on {source}:",
            *(f"  {output.line()}" for output in self.outputs),
            *([worst] if worst else ()),
        ]

    def short(self) -> str:
        """Return the text for the coverage line."""
        rated = [output for output in self.outputs if output.snr_db is not None]
        random = [output.name for output in self.outputs if output.drawn_by]
        texts = [f"{pluralize(len(random), 'output')} random, such as '{random[0]}'"] if random else []
        if rated:
            worst = min(rated, key=lambda output: cast("float", output.snr_db))
            line = f"SNR {worst.snr_text}" + (f" (worst: '{worst.name}')" if len(rated) > 1 else "")
            texts[:0] = [line, *([pluralize(len(self.warnings), "warning")] if self.warnings else ())]
        return "; ".join(texts)


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
    """Run original and result on every batch of `data`, and compare all outputs.

    Args:
        model: The original, for its inputs.
        original: Runs the original.
        result: Runs the result.
        data: See `dovetail_runtime.data.batches.batches`.
        seed: Seed of random inputs if there is no data.
        progress: Called after every batch.
        shapes: Shapes by name of random inputs that the model leaves open.
        made: The result's model; its input shapes may be static where the original's are open.

    Raises:
        DovetailError: The data is empty, or one of the models cannot be run.
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
    drawn = random_outputs(model)
    outputs, cautious = ([one.drawn(drawn.get(one.name, "")) for one in each] for each in (outputs, cautious))
    return Verification(outputs, count, data is None, tried, cut=cut, cautious=cautious)


def _fixed(made: Model | None) -> dict[str, tuple[int, ...]]:
    """Return the static input shapes of a model."""
    shapes = {name_of(value): value.shape for value in made.graph.inputs} if made is not None else {}
    return {
        name: shape.numpy()
        for name, shape in shapes.items()
        if shape is not None and all(isinstance(extent, int) and extent >= 0 for extent in shape)
    }


def _random_run(
    model: Model, original: Run, seed: int, given: Mapping[str, Sequence[int]]
) -> tuple[dict[str, tuple[int, ...]], Mapping[str, np.ndarray], dict[str, np.ndarray]]:
    """Find random inputs that the original accepts, and compute its outputs for them.

    A model may require more of an open extent than it declares, such as an image of at least 32 by 32, so several
    extents are tried.
    """
    inputs = given_inputs(model.graph, given)
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
        total.kl / total.distributions if total.distributions else None,
    )
