"""Test cases: models with inputs, references to compare with, and measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet


SUITES = ("nodes", "operators", "models")
"""Parts of the suite: onnx's node tests, operators of installed YAML files, and whole models."""

Values = Mapping[str, Any]
"""Inputs or outputs of a model by name: arrays or other values."""


@dataclass(frozen=True)
class Reference:
    """One way to compute the expected results.

    Attributes:
        name: Name in reports.
        run: Computes all outputs from all inputs; may raise any exception.
    """

    name: str
    run: Callable[[Values], Values]


@dataclass(frozen=True)
class PreparedCase:
    """A case that is ready to run.

    Attributes:
        model: The source model: a path, a proto, or anything else that `dovetail.open` accepts.
        inputs: The value of every input.
        expected: Recorded results by output; empty without any.
        references: References for the expected results, best first.
        proto: The model as a proto whose inputs may become constants; None if they may not.
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
        name: Its name, unique within the suite.
        operator: The tested operator, such as `Conv` or `acme::scale`; empty for a model.
        make: Prepares it with a set of plugins; called when the test runs.
    """

    suite: str
    name: str
    operator: str
    make: Callable[[PluginSet], PreparedCase] = field(compare=False, repr=False)

    @property
    def key(self) -> str:
        """Suite and name, a unique key."""
        return f"{self.suite}/{self.name}"


Outcome = Literal["compared", "host", "no-reference", "error"]
_OUTCOMES = ("compared", "host", "no-reference", "error")


@dataclass(frozen=True)
class CaseMeasurement:
    """Result of one case on one backend.

    Attributes:
        backend: The backend with its options.
        suite: The suite of the case.
        name: Its name.
        operator: The tested operator; empty for a model.
        outcome: `compared`; `host` if no node is on the backend; `no-reference` if nothing computes the expected
            results; `error` if compiling or running failed.
        placed: Number of nodes on the backend.
        others: Number of nodes elsewhere.
        reasons: Why nodes are elsewhere.
        refusal: The first of these reasons that an emitter or an engine gives; empty if none does.
        constants: Whether all inputs but the first became constants, as weights and axes usually are.
        reference: The reference that computed the expected results.
        exact: Whether all outputs are equal after rounding to their formats.
        share: The largest difference relative to the largest magnitude of its output.
        problem: The error, or why results cannot be compared.
        output: The output to which `share` or `problem` applies.
        seconds: Duration in seconds.
    """

    backend: str
    suite: str
    name: str
    operator: str
    outcome: Outcome
    placed: int = 0
    others: int = 0
    reasons: tuple[str, ...] = ()
    refusal: str = ""
    constants: bool = False
    reference: str = ""
    exact: bool = False
    share: float = 0.0
    problem: str = ""
    output: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """Suite and name of the case."""
        return f"{self.suite}/{self.name}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"reasons": list(self.reasons)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CaseMeasurement:
        """Parse the result of `as_dict`.

        Raises:
            ValueError: A field is missing, unknown or of another type.
        """
        kinds: dict[str, type | tuple[type, ...]] = {
            "str": str, "int": int, "bool": bool, "float": (int, float), "Outcome": str, "tuple[str, ...]": list,
        }  # fmt: skip
        known = {one.name: kinds[str(one.type)] for one in fields(cls)}
        for name, value in data.items():
            if name not in known:
                raise ValueError(f"unknown field '{name}'")
            if not isinstance(value, known[name]):
                raise ValueError(f"'{name}' is {value!r}")
        missing = [name for name in ("backend", "suite", "name", "operator", "outcome") if name not in data]
        if missing:
            raise ValueError(f"'{missing[0]}' is missing")
        if data["outcome"] not in _OUTCOMES:
            raise ValueError(f"'outcome' is {data['outcome']!r}")
        return cls(**{**data, "reasons": tuple(data.get("reasons", ()))})

    def line(self) -> str:
        """Return a one-line summary."""
        if self.outcome == "error":
            return f"fails: {self.problem}"
        if self.outcome == "host":
            return f"on the host: {'; '.join(self.reasons)}"
        if self.outcome == "no-reference":
            return f"nothing computes what it should give: {self.problem}"
        if self.problem:
            return f"output '{self.output}': {self.problem} (reference: {self.reference})"
        if self.exact:
            return f"exact (reference: {self.reference})"
        return f"output '{self.output}' differs by {self.share:.3g} of its largest value (reference: {self.reference})"
