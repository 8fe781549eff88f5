"""Data in parts with one use each: some samples calibrate, a search sees others, and the rest judge the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import Model, name_of
from dovetail.text import pluralize

from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, why_rows_stay_together
from dovetail_runtime.data.kept import RereadBatches
from dovetail_runtime.data.sources import data_items
from dovetail_runtime.feeds import optional_inputs, required_inputs

if TYPE_CHECKING:
    import numpy as np

    from dovetail_runtime.data.independent_rows import Run

    Arrays = Mapping[str, np.ndarray]

ENOUGH = 3
"""Independent samples from which on data is divided between them."""

JUDGES = 8
"""Independent samples that must judge before a goal is called met: of n + 1, any may be the worst."""

_JUDGED_OF = 3  # samples of few, of which one judges
_PROBED = 16  # rows that test whether rows may be split
_ROUND = 12  # samples of a sequence that are divided on their own, so that what drifts reaches every part
_MOST_ROUNDS = 4
_PIECES = 12  # of the rows that judge, so that the spread between them is known
_NUMBER = re.compile(r"[\W_]*\d+$")


class Use(Enum):
    """What a sample is for."""

    CALIBRATION = "calibration"
    SEARCH = "search"
    JUDGMENT = "judgment"


@dataclass(frozen=True)
class DataPart(RereadBatches):
    """One part of data, as input data.

    Attributes:
        read: Reads the arrays of this part: inputs and labels by name, batch by batch.
        data: The data that this is a part of.
        items: The files of the data that this part has, by number; empty if it is no choice of whole files.
    """

    read: Callable[[], Iterator[Arrays]]
    data: object
    items: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Arrays]:
        return self.read()

    @property
    def everything(self) -> object:
        """See `RereadBatches`."""
        return self.data


@dataclass(frozen=True)
class DataSplit:
    """Data in parts; parts of too little data are the same.

    Attributes:
        read: Reads the data: yields the number of an independent sample, and its arrays as input data.
        data: The data as it was given.
        uses: The use of each sample, by number; all the same if nothing can be held out.
        unit: What is counted as a sample: `recording`, `file`, `batch` or `row`.
        why: Why rows of a single batch stay together; empty if they are split, or there is only one.
        samples: The sample that each file belongs to, by number; empty if samples are no whole files.
    """

    read: Callable[[frozenset[int]], Iterator[tuple[int, Arrays]]]
    data: object
    uses: tuple[Use, ...]
    unit: str = "batch"
    why: str = ""
    samples: tuple[int, ...] = ()

    def part(self, *uses: Use) -> object:
        """Return the samples with one of these uses as input data; all of the data if it is in one part."""
        if not self.judged:
            return self.data
        wanted = frozenset(number for number, use in enumerate(self.uses) if use in uses)
        if not wanted:  # two samples: what calibrates is searched on
            return self.part(Use.CALIBRATION)
        items = tuple(item for item, sample in enumerate(self.samples) if sample in wanted)
        return DataPart(lambda: (arrays for _, arrays in self.read(wanted)), self.data, items)

    @property
    def judged(self) -> int:
        """How many samples judge that nothing else used; 0 if the data is in one part."""
        return self.uses.count(Use.JUDGMENT)

    @property
    def others(self) -> float:
        """How many samples judge, as a multiple of those that a search sees."""
        return self.judged / (self.uses.count(Use.SEARCH) or self.uses.count(Use.CALIBRATION)) if self.judged else 1.0

    @property
    def too_few(self) -> str:
        """Say that too few samples judge to call a goal met, and how many are needed; empty if there are enough."""
        if self.judged >= JUDGES:
            return ""
        more = pluralize(_JUDGED_OF * JUDGES, f"independent {self.unit if self.judged else 'sample'}")
        if not self.judged:
            return f"no sample of its own can judge, {JUDGES} must, and {more} give as many"
        has = f"{pluralize(self.judged, self.unit)} of {len(self.uses)}"
        sure = f"another is worse than all of them with a probability of 1 in {self.judged + 1}"
        return f"measured on {has}, and {sure}; {JUDGES} must judge, and {more} give as many"

    @property
    def text(self) -> str:
        """What accuracy is measured on, as a sentence."""
        if self.judged:
            of = pluralize(len(self.uses), self.unit)
            searched = " and search" if Use.SEARCH in self.uses else ""
            return f"accuracy on {self.judged} of {of}, held out from calibration{searched}"
        reason = f"{self.why}; give more files" if self.why else "it is one batch; give more files or samples"
        return f"accuracy on the data that also calibrated, since none could be held out: {reason}"


def split_data(
    model: Model,
    data: object,
    run: Run,
    searched: bool = False,
    fixed: Mapping[str, Sequence[int]] | None = None,
) -> DataSplit:
    """Divide data between independent samples; the same data is always divided in the same way.

    Samples are recordings (subfolders, or files that are numbered under one name) if there are three of them, else
    files, batches or rows that are found to be independent. What may come out of one recording stays in sequence:
    neighbors are in one part, except at its ends.

    Args:
        model: The model.
        data: See `dovetail_runtime.data.sources.read_data`; it is read anew for each part.
        run: Runs the model, to find out whether rows are independent.
        searched: Whether a search needs a part of its own; otherwise its samples calibrate.
        fixed: Shapes by name that the result has where the model leaves them open.

    Raises:
        DovetailError: The data does not match the model.
    """
    names = [name_of(v) for v in required_inputs(model.graph)], [name_of(v) for v in optional_inputs(model.graph)]
    read_items = partial(data_items, data, *names)
    origins = [where for _, where in read_items()]
    divided = partial(_uses, searched=searched)
    if len(origins) >= ENOUGH:
        groups, unit = list(range(len(origins))), "batch"
        if isinstance(data, (str, Path)):
            groups, unit = _recordings(origins)
        elif isinstance(data, RereadBatches) and data.recordings:
            groups, unit = list(data.recordings), "recording"
        in_sequence = unit != "recording"

        def of_items(wanted: frozenset[int]) -> Iterator[tuple[int, Arrays]]:
            items = ((groups[number], read) for number, (read, _) in enumerate(read_items()))
            return ((group, read()) for group, read in items if group in wanted)

        counts = [groups.count(group) for group in range(max(groups) + 1)]
        if len(counts) < ENOUGH:
            return DataSplit(of_items, data, (Use.CALIBRATION,) * len(counts), unit, "it is of two recordings at most")
        uses = divided(len(counts)) if in_sequence else _between(counts, divided(len(counts)))
        return DataSplit(of_items, data, tuple(uses), unit, samples=tuple(groups))
    return _of_batches(model, data, run, divided, _with_shapes(model, fixed or {}))


def _with_shapes(model: Model, fixed: Mapping[str, Sequence[int]]) -> Model:
    """Return a model without nodes that has the inputs of another one, in fixed shapes."""
    values = [(name_of(value), value) for value in model.graph.inputs]
    inputs = [
        ir.Value(name=name, type=value.type, shape=ir.Shape(fixed[name]) if name in fixed else value.shape)
        for name, value in values
    ]
    return Model(ir.Model(ir.Graph(inputs, [], nodes=[]), ir_version=10))


def _of_batches(model: Model, data: object, run: Run, divided: Callable[[int], list[Use]], made: Model) -> DataSplit:
    """Divide one or two files or batches: between the runs that they are cut into, or the rows of a single one."""
    read = partial(batches, model, data, made, run)
    total = sum(1 for _ in read())
    why = ""
    whole = list(islice(batches(model, data, made, run, whole=True), 2))
    if len(whole) == 1:
        open_ = {v.name for v in made.graph.inputs if v.shape and not isinstance(v.shape[0], int)}
        feeds, labels = whole[0]
        names = inputs_of_samples(model) & open_ & feeds.keys()
        lengths = {len(feeds[name]) for name in names}
        if len(lengths) == 1 and (rows := min(lengths)) > 1:
            why = why_rows_stay_together(model, feeds, names, min(rows, _PROBED), run)
            if not why:
                uses = divided(rows)
                return DataSplit(partial(_rows, whole[0], names, uses), data, tuple(uses), "row")

    def of_batches(wanted: frozenset[int]) -> Iterator[tuple[int, Arrays]]:
        return ((number, _merged(*batch)) for number, batch in enumerate(read()) if number in wanted)

    return DataSplit(of_batches, data, tuple(divided(total)), "batch", why)


def _rows(
    batch: tuple[Arrays, Arrays], names: frozenset[str], uses: Sequence[Use], wanted: frozenset[int]
) -> Iterator[tuple[int, Arrays]]:
    """Yield the wanted rows: all together if they calibrate, else in a few pieces, whose spread can be measured."""
    feeds, labels = batch
    rows = len(uses)
    truth = {name for name, array in labels.items() if len(array) == rows}
    chosen = sorted(wanted)
    calibrates = any(uses[row] is Use.CALIBRATION for row in chosen)
    size = len(chosen) if calibrates else -(-len(chosen) // _PIECES)
    for begin in range(0, len(chosen), size):
        piece = chosen[begin : begin + size]
        parts = (
            {name: array[piece] if name in cut else array for name, array in arrays.items()}
            for arrays, cut in ((feeds, names), (labels, truth))
        )
        yield piece[0], _merged(*parts)


def _uses(total: int, searched: bool) -> list[Use]:
    """Return the use of each of a sequence of samples; long ones are divided in a few rounds, one after the other."""
    rounds = max(1, min(_MOST_ROUNDS, total // _ROUND))
    ends = [total * (number + 1) // rounds for number in range(rounds)]
    wanted = -(-JUDGES // rounds) if searched else 1
    return [use for begin, end in zip([0, *ends], ends) for use in _round(end - begin, searched, wanted)]


def _round(total: int, searched: bool, wanted: int) -> list[Use]:
    """Return the uses of a few samples: first those that calibrate, last those that judge.

    A quarter of them judges, or a third where fewer than are `wanted` would.
    """
    if total < 2:
        return [Use.CALIBRATION] * total
    enough = ENOUGH if searched else 1
    judging = max(total // 4, min(wanted, total // _JUDGED_OF), enough if total >= enough + 2 else 1)
    searching = max(1, (total - judging + 1) // 3) if searched and total > 2 else 0
    parts = (Use.CALIBRATION, total - judging - searching), (Use.SEARCH, searching), (Use.JUDGMENT, judging)
    return [use for use, number in parts for _ in range(number)]


def _between(counts: Sequence[int], uses: Sequence[Use]) -> list[Use]:
    """Return a use of each recording, spread over all of them, so that each part has its share of the files.

    Args:
        counts: Files of each recording.
        uses: As many uses, which say the shares.
    """
    left = {use: uses.count(use) for use in Use}
    share = {use: left[use] / len(uses) for use in Use}
    found: list[Use] = []
    files = dict.fromkeys(Use, 0)
    for seen, count in enumerate(counts):
        done = sum(counts[: seen + 1])
        # One recording at least is left for each part that has none yet.
        short = [use for use in Use if left[use] > 0]
        use = max(short, key=lambda use: share[use] * done - files[use])
        left[use] -= 1
        files[use] += count
        found.append(use)
    return found


def _recordings(origins: Sequence[str]) -> tuple[list[int], str]:
    """Return the recording of each file, by number, or a number per file if there are no three recordings."""
    for key in (_folder, _title):
        keys = [key(Path(origin)) for origin in origins]
        known = {name: number for number, name in enumerate(dict.fromkeys(keys))}
        if ENOUGH <= len(known) < len(keys):
            return [known[name] for name in keys], "recording"
    return list(range(len(origins))), "file"


def _folder(path: Path) -> str:
    return str(path.parent if path.suffix else path)


def _title(path: Path) -> str:
    """Return the name of a file without the number at its end."""
    return f"{path.parent}/{_NUMBER.sub('', path.stem)}"


def _merged(feeds: Arrays, labels: Arrays) -> Arrays:
    """Return inputs and labels of a batch in the form of input data."""
    return {**feeds, **{f"labels:{name}" if name else "labels": array for name, array in labels.items()}}
