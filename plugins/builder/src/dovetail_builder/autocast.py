"""Autocast regions, in which a builder inserts casts by policy.

The policies are those of PyTorch's autocast (https://pytorch.org/docs/stable/amp.html) as data, and regions nest as
there. Three differences are intentional. Casts are cached by value *and* type, so that a nested region of another
precision never gets a stale one. Types are promoted in a lattice: float16 and bfloat16 join to float32, which is not an
error. And because ONNX has no implicit promotion, operators without a policy promote as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, cast

from dovetail.errors import UsageError
from dovetail.ir import float_name, from_name, promote
from dovetail_onnx.signatures import Signature, find_signature, input_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import PluginSet
    from dovetail_schemas.policy_file import Policies

    from dovetail_builder.builder import Builder


_POLICIES = {"float16": "fp16", "bfloat16": "bf16"}
_ELIGIBLE = frozenset({"float16", "bfloat16", "float32"})
_HIGH = frozenset({"fp32", "fp32-accumulate", "fp32-round-trip"})
_UNTOUCHED = frozenset({"none", "recurse", "follow-consumer"})
_REGION: ContextVar[AutocastRegion | None] = ContextVar("dovetail-autocast", default=None)


class autocast:  # noqa: N801  (used like a function, as in PyTorch)
    """An autocast region: `with dovetail.autocast("float16"): y = builder.MatMul(x, w)`.

    One object may be entered any number of times, recursively and from several threads.

    Args:
        precision: `float16` or `bfloat16`; by default that of the enclosing region, else `bfloat16`.
        enabled: If False, nothing is cast inside, and the input types of an operator must agree.
        plugins: The plugins with the policies; all installed ones by default.

    Raises:
        UsageError: The precision is neither of these.
    """

    def __init__(self, precision: str | None = None, enabled: bool = True, plugins: PluginSet | None = None):
        if precision is not None and precision not in _POLICIES:
            raise UsageError(f"autocast to '{precision}' is not possible", f"one of {', '.join(_POLICIES)}")
        self.precision = precision
        self.enabled = enabled
        self._plugins = plugins

    def __enter__(self) -> AutocastRegion:
        outer = _REGION.get()
        precision = self.precision or (outer.precision if outer else "bfloat16")
        policies = None
        if self.enabled:
            policies = outer.policies if outer is not None and outer.precision == precision else None
            if policies is None:
                policies = _load(precision, self._plugins)
        region = AutocastRegion(precision, policies, outer)
        _REGION.set(region)
        return region

    def __exit__(self, *_: object) -> None:
        _REGION.set(cast("AutocastRegion", _REGION.get()).outer)


class AutocastRegion:
    """An entered region, with its settings and its enclosing region.

    Attributes:
        precision: `float16` or `bfloat16`.
        policies: The policies of operators; None if the region is disabled.
        outer: The enclosing region, or None.
    """

    def __init__(self, precision: str, policies: Policies | None, outer: AutocastRegion | None):
        self.precision = precision
        self.policies = policies
        self.outer = outer
        # Nested regions share the casts of the outermost one; keyed by type, they cannot be stale.
        self._casts: dict[tuple[ir.Value, str], ir.Value] = outer._casts if outer else {}

    @property
    def enabled(self) -> bool:
        """Whether it inserts casts."""
        return self.policies is not None

    def prepare(
        self, builder: Builder, op_type: str, domain: str, inputs: Sequence[ir.Value | None]
    ) -> tuple[list[ir.Value | None], Callable[[ir.Value], ir.Value]]:
        """Return the inputs of an operator, cast as its policy requires, and a function for each output."""
        policies = self.policies
        policy = policies.policy.get((domain, op_type), "") if policies is not None else "none"
        if policies is None or policy in _UNTOUCHED:
            return list(inputs), lambda value: value
        sig = find_signature(domain, op_type, builder.opset)
        keep = policies.keep.get((domain, op_type), frozenset())
        wanted = _wanted(policy, self.precision, sig, inputs, keep)
        made = [
            value if value is None or kind is None else self._cast(builder, value, kind)
            for value, kind in zip(inputs, wanted, strict=True)
        ]
        if policy != "fp32-round-trip" or not inputs or (back := _eligible(inputs[0])) is None:
            return made, lambda value: value
        return made, lambda value: self._cast(builder, value, back) if _eligible(value) else value

    def _cast(self, builder: Builder, value: ir.Value, kind: str) -> ir.Value:
        if float_name(value) == kind:
            return value
        key = (value, kind)
        if key not in self._casts:
            (self._casts[key],) = builder.plain_op("Cast", [value], {"to": from_name(kind).value})
        return self._casts[key]


def current_region() -> AutocastRegion | None:
    """Return the innermost entered region of this thread and task, or None."""
    return _REGION.get()


def _load(precision: str, plugins: PluginSet | None) -> Policies:
    from dovetail.plugin import load_plugins

    table = (plugins or load_plugins()).registry.policy
    source = table[_POLICIES[precision]]
    from dovetail_schemas.policy_file import load_policies  # the distribution that brings policies also brings this

    return load_policies(source, lambda _source, name: table.get(name))


def _eligible(value: ir.Value | None) -> str | None:
    """Return the float type of a value that may be cast; float64 is deliberate and never cast."""
    kind = float_name(value)
    return kind if kind in _ELIGIBLE else None


def _is_scalar(value: ir.Value | None) -> bool:
    """Check whether a value has rank 0: in PyTorch, scalars adopt the type of tensors, one-element tensors do not."""
    return value is not None and value.shape is not None and value.shape.rank() == 0


def _wanted(
    policy: str, low: str, sig: Signature | None, inputs: Sequence[ir.Value | None], keep: frozenset[str]
) -> list[str | None]:
    """Return the type that each input is cast to; None for inputs that are not cast."""
    kinds = [_eligible(value) for value in inputs]
    if sig is None:
        return [None] * len(inputs)
    wanted: list[str | None] = []
    for index, kind in enumerate(kinds):
        port = sig.input(index)
        if kind is None or port is None or port.variadic and not port.homogeneous:
            wanted.append(None)
        elif policy in _HIGH:
            wanted.append("float32")
        elif input_name(index, sig) in keep:
            wanted.append(None)
        elif policy == "lower":
            wanted.append(low)
        else:
            # Ports with the same type parameter get the same type, the widest among them.
            ports = map(sig.input, range(len(kinds)))
            peers = [i for i, p in enumerate(ports) if kinds[i] and p and p.parameter == port.parameter]
            peers = [i for i in peers if not _is_scalar(inputs[i])] or peers
            wanted.append(promote(*(k for i in peers if (k := kinds[i]))))
    return [kind if kind is None or _takes(sig, index, kind) else "float32" for index, kind in enumerate(wanted)]


def _takes(sig: Signature, index: int, kind: str) -> bool:
    """Check whether the operator accepts a type at this input in this version."""
    name = {"float32": "float"}.get(kind, kind)
    port = sig.input(index)
    return port is not None and f"tensor({name})" in port.allowed
