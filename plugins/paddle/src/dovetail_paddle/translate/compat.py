"""The names of operators and of their arguments in legacy programs, out of `op_compat.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dovetail_paddle.signatures import Operator

_FILE = Path(__file__).parent.parent / "op_compat.yaml"
_NAMES = re.compile(r"(\w+)\s*(?:\((\w+)\))?\s*")
_KEYS = frozenset(("op", "backward", "inputs", "outputs", "attrs", "scalar", "int_array", "extra"))
_FORM_KEYS = frozenset(("data_type", "tensor_name", "tensors_name", "support_tensor"))


@dataclass(frozen=True)
class TensorForm:
    """The inputs of a legacy operator that give an attribute as tensors.

    Attributes:
        tensor: The input that gives it as one tensor; empty if there is none.
        tensors: The input that gives it as a list of tensors with one element each; empty if there is none.
    """

    tensor: str = ""
    tensors: str = ""


@dataclass(frozen=True)
class Compat:
    """What a legacy operator is called, and its arguments.

    Attributes:
        op: The operator of `pd_op`.
        legacy: The legacy operator.
        inputs: Legacy names of inputs by new name.
        outputs: Legacy names of outputs by new name.
        attrs: Legacy names of attributes by new name.
        tensor_forms: The tensors that give attributes, by new name.
    """

    op: str
    legacy: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, str] = field(default_factory=dict)
    tensor_forms: Mapping[str, TensorForm] = field(default_factory=dict)


@cache
def compat() -> Mapping[str, Compat]:
    """Return the entries of `op_compat.yaml` by legacy operator."""
    return read_compat(_FILE)


def read_compat(path: Path) -> dict[str, Compat]:
    """Read a file of names.

    Raises:
        ValueError: An entry is malformed; names it.
    """
    import yaml

    entries = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    found: dict[str, Compat] = {}
    for entry in entries:
        made = _entry(entry)
        if made.legacy in found:
            raise ValueError(f"{path.name}: legacy operator '{made.legacy}' has two entries")
        found[made.legacy] = made
    return found


def _entry(entry: Mapping[str, Any]) -> Compat:
    names = _NAMES.fullmatch(entry["op"])
    if names is None:
        raise ValueError(f"op : {entry['op']!r} is not `name` or `name (legacy name)`")
    if unknown := sorted(set(entry) - _KEYS):
        raise ValueError(f"op : {entry['op']}: unknown keys {', '.join(unknown)}")
    forms = {}
    for name, form in {**entry.get("scalar", {}), **entry.get("int_array", {})}.items():
        if unknown := sorted(set(form) - _FORM_KEYS):
            raise ValueError(f"op : {entry['op']}: '{name}' has unknown keys {', '.join(unknown)}")
        forms[name] = TensorForm(form.get("tensor_name", ""), form.get("tensors_name", ""))
    inputs, outputs, attrs = (dict(entry.get(key) or {}) for key in ("inputs", "outputs", "attrs"))
    return Compat(names[1], names[2] or names[1], inputs, outputs, attrs, forms)


def compat_problems(entries: Mapping[str, Compat], operators: Mapping[str, Operator]) -> list[str]:
    """Return what entries say of operators and arguments that there are none of, one line each."""
    problems = []
    for entry in entries.values():
        operator = operators.get(entry.op)
        if operator is None:
            problems.append(f"'{entry.op}' is no operator of pd_ops.yaml")
            continue
        outputs = {output.name for output in operator.outputs}
        tensors = {argument.name for argument in operator.arguments if argument.is_tensor}
        attributes = {argument.name for argument in operator.arguments if not argument.is_tensor}
        for names, known, what in (
            (entry.inputs, tensors, "input"),
            (entry.outputs, outputs, "output"),
            (entry.attrs, attributes, "attribute"),
            (entry.tensor_forms, attributes, "attribute"),
        ):
            problems += [f"'{entry.op}' has no {what} '{name}'" for name in names if name not in known]
    return problems
