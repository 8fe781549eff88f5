"""Comparison of original and result on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.text import pluralize
from dovetail_runtime.feeds import given_inputs
from dovetail_transforms.canonicalize.open_values import open_outputs

from dovetail_verify.batch_differences import Differences, RunFunction, by_batch, differences_of
from dovetail_verify.metrics import DifferenceSums
from dovetail_verify.output_comparison import OutputComparison, comparison_of, warning_of
from dovetail_verify.random_inputs import CANDIDATES, random_feeds, random_shapes
from dovetail_verify.spread import Spread

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model

    from dovetail_verify.accuracy.goals import Miss
    from dovetail_verify.layers import LayerErrors


def _json(value: Any) -> Any:
    """Return a figure as JSON has it: `inf`, `-inf` and `nan` as text."""
    if isinstance(value, (tuple, list)):
        return [_json(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class OutputVerification:
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
        cautious: The outputs with figures that similar batches are unlikely to fall below; see `Spread`.
        held_back: The part of the data that the figures cover, as a sentence; empty if they cover all that was given.
        too_few: Why a goal that is not missed is not called met, as a sentence.
        spread_db: The largest standard deviation of the SNR of single batches at any output, in decibels.
        doubts: Objections to a goal by the labels, and to figures by the original itself, as sentences.
        engines: The engines that computed the result, each with its backend: `half-sums (gpu-fp16)`.
        ran_on: Those that the workers of a cluster told of.
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
    too_few: str = ""
    spread_db: float = 0.0
    doubts: list[str] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)
    ran_on: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """Advice about the warnings, or about an output that is no approximation."""
        if self.broken:
            return self.way_out
        return "measure on real inputs: --data FILE" if self.random else self.remedy

    @property
    def broken(self) -> bool:
        """Whether any output is not an approximation of the original; commands then exit with 1."""
        return any(output.broken for output in self.outputs)

    @property
    def way_out(self) -> str:
        """What to do about an output that is no approximation of the original; empty without one."""
        output = next((output for output in self.outputs if output.broken), None)
        if output is None:
            return ""
        if output.shapes is not None:
            ours, theirs = ("x".join(map(str, shape)) or "scalar" for shape in output.shapes)
            return (
                f"'{output.name}' has the shape {theirs}, and {ours} in the original: a length or a count is computed "
                "from values that are rounded; compute what decides it in float32: --high and the names of these nodes"
            )
        if output.hidden == output.non_finite:
            return (
                f"the original computes NaN in '{output.name}' for these inputs, and an engine makes numbers of NaN, "
                "as its page says: look for the node that computes NaN, or leave these inputs out"
            )
        return (
            f"'{output.name}' has elements that are infinite or NaN: --data lets ranges be measured, and "
            "`dovetail verify MODEL OUT --data FILE --layers` shows the first node that loses them, for --high"
        )

    @property
    def worst(self) -> str:
        """The figure of the worst output in words, that of floats if there are any: `SNR 31.2 dB`."""
        snr = self.worst_snr_db
        if snr is None:
            worst = min(self.outputs, key=lambda output: output.rated_db)
            return "exact" if worst.rated_db == math.inf else "broken" if worst.broken else worst.disagreement
        return "exact" if snr == math.inf else "broken" if snr == -math.inf else f"SNR {snr:.1f} dB"

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
        return [*random, *filter(None, (self.held_back, self.too_few)), *self.doubts, *self.cut]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; numbers that are not finite become strings, because JSON has none."""
        outputs = [{name: _json(value) for name, value in asdict(output).items()} for output in self.outputs]
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {"batches": self.batches, "random": self.random, "engines": self.engines,
                "input_shapes": shapes, "broken": self.broken,
                "outputs": outputs, "missed": list(map(str, self.missed)), "warnings": self.warnings,
                "measured_on": self.held_back, "too_few": self.too_few,
                **({"layers": self.layers.as_dict()} if self.layers is not None else {})}  # fmt: skip

    def saturation(self) -> list[str]:
        """Say of which exact outputs the SNR is no measure, because the original computes nothing but -1, 0 and 1."""
        names = [f"'{output.name}'" for output in self.outputs if output.saturated and output.snr_db == math.inf]
        if not names:
            return []
        who = f"{', '.join(names)} {'holds' if len(names) == 1 else 'hold'} nothing but -1, 0 and 1 for these inputs"
        return [
            f"{who}, as behind a saturated Softmax, Sigmoid or Tanh: that they are equal says nothing of the numbers "
            "before; `dovetail verify --layers` compares those, and inputs like real ones show what is lost"
        ]

    def lines(self) -> list[str]:
        """Return report lines: the inputs, then one line per output."""
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in self.shapes.items())
        source = f"one batch of random inputs ({shapes})" if self.random else pluralize(self.batches, "batch")
        worst = f"worst layer by {self.layers.by}: {self.layers.worst}" if self.layers is not None else ""
        return [
            f"verified on {source}:",
            *(f"  {output.line()}" for output in self.outputs),
            *([worst] if worst else ()),
            *([f"computed by {', '.join(self.engines)}"] if self.engines else ()),
        ]

    def short(self) -> str:
        """Return the text for the coverage line."""
        left = [output.name for output in self.outputs if output.open_because]
        floats = [output for output in self.outputs if output.snr_db is not None]
        others = [output for output in self.outputs if output.snr_db is None and not output.open_because]
        parts = []
        if floats:
            worst = min(floats, key=lambda output: cast("float", output.snr_db))
            parts.append(f"SNR {worst.snr_text}" + (f" (worst: '{worst.name}')" if len(floats) > 1 else ""))
        if differing := [output for output in others if output.rated_db < math.inf]:
            worst = min(differing, key=lambda output: output.rated_db)
            more = f" (worst of {len(differing)})" if len(differing) > 1 else ""
            parts.append(f"'{worst.name}': {'broken' if worst.broken else worst.disagreement}{more}")
        elif others and not floats:
            parts.append("all elements equal")
        if self.warnings:
            parts.append(pluralize(len(self.warnings), "warning"))
        if left:
            parts.append(f"{pluralize(len(left), 'output')} not compared, such as '{left[0]}'")
        return "; ".join(parts)


def verify(
    model: Model,
    original: RunFunction,
    result: RunFunction,
    data: object = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    made: Model | None = None,
    others: float = 0.0,
    whole: bool = False,
) -> OutputVerification:
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
        others: How many other batches the cautious figures are for; see `Spread.low_snr_db`.
        whole: Look at all batches, however long the result takes: what is decided by it must not depend on a clock.

    Raises:
        DovetailError: The data is empty, or one of the models cannot be run.
    """
    tried: dict[str, tuple[int, ...]] = {}
    cut: list[str] = []
    if data is None:
        tried, feeds, ours = random_run(model, original, seed, {**_fixed(made), **(shapes or {})})
        differences: Iterable[Differences] = [differences_of(model, ours, result(feeds), {})]
    else:
        differences = by_batch(model, original, result, data, made, cut.append, whole)
    found = summed(model, differences, progress, others)
    found.random, found.shapes, found.cut = data is None, tried, cut
    return found


def summed(
    model: Model,
    differences: Iterable[Differences],
    progress: Callable[[str, int, int], None] | None = None,
    others: float = 0.0,
) -> OutputVerification:
    """Return the comparison that the differences of all batches amount to; see `verify`.

    Raises:
        DovetailError: There is no batch.
    """
    sums: dict[str, DifferenceSums] = {}
    spread: dict[str, Spread] = {}
    count = 0
    for count, found in enumerate(differences, start=1):
        for name, one in found.items():
            total = sums.setdefault(name, DifferenceSums())
            total.merge(one)
            spread.setdefault(name, Spread()).add(total)
        if progress:
            progress("verify", count, 0)
    if not count:
        raise DovetailError("the data holds no batch, so nothing was verified", "give at least one sample")
    outputs = [comparison_of(name, total) for name, total in sums.items()]
    cautious = [spread[output.name].applied(output, others) for output in outputs]
    why = open_outputs(model)
    outputs, cautious = ([one.left_open(why.get(one.name, "")) for one in each] for each in (outputs, cautious))
    deviation = max((spread[output.name].deviation_db for output in outputs), default=0.0)
    return OutputVerification(outputs, count, cautious=cautious, spread_db=deviation)


def _fixed(made: Model | None) -> dict[str, tuple[int, ...]]:
    """Return the static input shapes of a model."""
    shapes = {name_of(value): value.shape for value in made.graph.inputs} if made is not None else {}
    return {
        name: shape.numpy()
        for name, shape in shapes.items()
        if shape is not None and all(isinstance(extent, int) and extent >= 0 for extent in shape)
    }


def random_run(
    model: Model, original: RunFunction, seed: int, given: Mapping[str, Sequence[int]]
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
