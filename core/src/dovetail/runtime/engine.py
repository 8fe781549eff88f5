"""What executes a part of a model: the contract of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from dovetail.ir.model import Model

__all__ = ["Availability", "Engine", "Executed", "Reads", "RegionModel", "Session"]


class Availability(NamedTuple):
    """Can an engine run on this machine, and if not, why; `why` may also hold a caveat of one that can."""

    ok: bool
    why: str = ""


class Reads(NamedTuple):
    """What an engine's reader takes.

    Attributes:
        opset: The highest version of the default ONNX domain.
        ir_version: The highest ONNX IR version.
        types: Names of the element types it takes at its borders.
    """

    opset: int
    ir_version: int
    types: frozenset[str]


class Executed(NamedTuple):
    """How one node was really executed.

    Attributes:
        precision: Element type it computed in, as the engine reports it; empty when it does not report.
        how: `reported`, `reported-on-cpu` (by the engine of another device, which left this node to the CPU),
            `fused-into:<node>`, `folded` (computed once, when the region was loaded), `reported-alone` (of a body that
            was compiled by itself to find out) or `not-reported`.
    """

    precision: str
    how: str


@dataclass(frozen=True)
class RegionModel:
    """A part of a plan as a model of its own.

    Attributes:
        model: The model; node names are those of the whole model.
        path: A file that holds exactly this model, where there is one already; the engine may read it instead.
    """

    model: Model
    path: Path | None = None


class Session(Protocol):
    """A loaded region."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name. bfloat16 arrays have the dtype `ml_dtypes.bfloat16`."""

    def executed(self) -> dict[str, Executed]:
        """How every node of the region was executed, by node name."""


class Engine(Protocol):
    """Something that executes region models."""

    name: str

    def available(self) -> Availability:
        """Whether it can run here; must be cheap and must not raise."""

    @property
    def reads(self) -> Reads:
        """What its reader takes."""

    def load(self, region: RegionModel, options: Mapping[str, object]) -> Session:
        """Make a session.

        Raises:
            DovetailError: The engine refuses the region; the message names the node where the engine does.
        """
