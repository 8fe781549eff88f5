"""What the suite runs: a model with inputs, and what its results are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin.loader import PluginSet


SUITES = ("nodes", "operators", "models")
"""The parts of the suite: onnx's node tests, operators of installed YAML files, and whole models."""

Values = Mapping[str, Any]
"""Arrays, or what else a model takes and gives, by name."""


@dataclass(frozen=True)
class Reference:
    """One way to compute the expected results.

    Attributes:
        name: What reports call it.
        run: Computes all outputs of all inputs; raises anything if it cannot.
    """

    name: str
    run: Callable[[Values], Values]


@dataclass(frozen=True)
class Work:
    """A case, made ready to run.

    Attributes:
        model: The source model: a path, a proto, or whatever else `dovetail.open` takes.
        inputs: The value of every input.
        expected: Results that were recorded with the inputs, by output; empty if none were.
        references: What computes the expected results, the best one first.
        proto: The model as a proto, where inputs may become constants of it; None where they may not.
    """

    model: Any
    inputs: Values
    expected: Values = field(default_factory=dict)
    references: Sequence[Reference] = ()
    proto: onnx.ModelProto | None = None


@dataclass(frozen=True)
class Case:
    """One test of the suite.

    Attributes:
        suite: One of `SUITES`.
        name: Its name, unique in its suite.
        operator: The operator that it tests, as `Conv` or `acme::scale`; empty for a model.
        make: Makes it ready to run with a set of plugins; called when the test runs.
    """

    suite: str
    name: str
    operator: str
    make: Callable[[PluginSet], Work] = field(compare=False, repr=False)

    @property
    def key(self) -> str:
        """Suite and name, which no other case has."""
        return f"{self.suite}/{self.name}"
