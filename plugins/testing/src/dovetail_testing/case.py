"""What the suite runs: a model with inputs, and what its results are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet


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


Outcome = Literal["compared", "host", "no-reference", "error"]
_OUTCOMES = ("compared", "host", "no-reference", "error")


@dataclass(frozen=True)
class Measurement:
    """One case on one backend.

    Attributes:
        backend: The backend with its options.
        suite: The suite of the case.
        name: Its name.
        operator: The operator that it tests; empty for a model.
        outcome: `compared`; `host` if no node is on the backend; `no-reference` if nothing computes what the results
            should be; `error` if compiling or running failed.
        placed: How many nodes are on the backend.
        others: How many are elsewhere.
        reasons: Why nodes are elsewhere.
        constants: Whether all inputs but the first were made constants of the model, as weights and axes are in most.
        reference: What computed the expected results.
        exact: Whether all outputs are the same, rounded to the formats in which they are held.
        share: The largest difference, as a share of the largest magnitude of its output.
        problem: The error, or why results cannot be compared.
        output: The output that `share` or `problem` is about.
        seconds: How long it took.
    """

    backend: str
    suite: str
    name: str
    operator: str
    outcome: Outcome
    placed: int = 0
    others: int = 0
    reasons: tuple[str, ...] = ()
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
        """Plain data that JSON can hold."""
        return asdict(self) | {"reasons": list(self.reasons)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """Parse what `as_dict` gave.

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
        """One line for a person."""
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
