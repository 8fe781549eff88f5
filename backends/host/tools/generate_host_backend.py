"""Generate `backends/host/src/dovetail_host/host.yaml`: what ONNX Runtime's CPU provider or the reference runs.

    python backends/host/tools/generate_host_backend.py

Types come from ONNX Runtime's kernel table, or from the schema if the operator runs through its function body or on the
reference, which accepts any array.
"""

from __future__ import annotations

import importlib
import re
import textwrap
from collections import defaultdict
from pathlib import Path

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as binding

TARGET = Path(__file__).parents[1] / "src" / "dovetail_host" / "host.yaml"
NEWEST_OPSET = 26
ORDER = re.findall(
    r"\w+",
    """float64 float32 float16 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz float8e8m0 float4e2m1
int64 int32 int16 int8 int4 int2 uint64 uint32 uint16 uint8 uint4 uint2 bool string complex64 complex128""",
)
COUNTS = frozenset({"int32", "int64"})
CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
CONTROL_PORTS = 32
REFERENCE = {
    "": "onnx.reference.ops",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training",
}
DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
COPIES = frozenset({"MemcpyFromHost", "MemcpyToHost"})  # between devices, inserted by ONNX Runtime itself
_TENSOR = re.compile(r"tensor\((\w+)\)")
_ELEMENTS = {"float": "float32", "double": "float64"}

Types = frozenset[str]


def main() -> None:
    """Write the file."""
    schemas, halves = latest_schemas(), halves_of_schemas()
    rules: dict[tuple[str, str], dict[str, Types]] = {}
    for operator, params in kernel_types().items():
        if operator in schemas:
            rules[operator] = ports_of(schemas[operator], params)
        elif operator[0] in DOMAINS or not operator[0] and operator[1] not in COPIES:
            types = frozenset().union(*params.values())
            if "float32" in types:
                types |= halves.get(operator, frozenset())
            rules[operator] = {"": types} if len(params) == 1 and types else {}
    for operator, schema in schemas.items():
        if has_reference(schema) or schema.has_function or schema.has_context_dependent_function:
            rules[operator] = ports_of(schema, {})
    TARGET.write_text(text_of(rules))


def kernel_types() -> dict[tuple[str, str], dict[str, Types]]:
    """Return the element types of every type parameter of every CPU kernel, over all versions."""
    found: dict[tuple[str, str], dict[str, Types]] = defaultdict(dict)
    for kernel in binding.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            params = found[kernel.domain, kernel.op_name]
            for param, types in kernel.type_constraints.items():
                params[param] = params.get(param, frozenset()) | elements(types)
    return found


def latest_schemas() -> dict[tuple[str, str], onnx.defs.OpSchema]:
    """Return the newest definition of every operator of the standard domains; its types include older ones."""
    return {
        (schema.domain, schema.name): schema
        for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version)
        if schema.domain in REFERENCE
    }


def halves_of_schemas() -> dict[tuple[str, str], Types]:
    """Return float16 for every operator of ONNX Runtime whose schema takes it.

    Where there is no kernel for it on CPUs, ONNX Runtime casts to float32 and back. It does not do that for bfloat16.
    """
    return {
        (schema.domain, schema.name): frozenset({"float16"})
        for schema in binding.get_all_operator_schema()
        if any("tensor(float16)" in constraint.allowed_type_strs for constraint in schema.type_constraints)
    }


def has_reference(schema: onnx.defs.OpSchema) -> bool:
    """Whether the reference evaluator implements the operator."""
    try:
        importlib.import_module(REFERENCE[schema.domain]).load_op(schema.domain, schema.name, schema.since_version)
    except Exception:  # it raises assertions and classes of its own
        return False
    return True


def ports_of(schema: onnx.defs.OpSchema, kernel: dict[str, Types]) -> dict[str, Types]:
    """Return the types per port; under `""` if all data ports share them."""
    params = {c.type_param_str: elements(c.allowed_type_strs) for c in schema.type_constraints}
    params = {param: kernel.get(param) or types for param, types in params.items()}
    if not params:
        return {"": elements(port.type_str for port in (*schema.inputs, *schema.outputs))}
    data = {param: types for param, types in params.items() if not types <= COUNTS} or params
    if schema.name in CONTROL:
        # States and branch results differ in type, so every port has its own.
        everything = frozenset().union(*params.values())
        return {f"{side}{i}": everything for side in ("in", "out") for i in range(CONTROL_PORTS)}
    if len(data) == 1:
        return {"": next(iter(data.values()))}
    return {port.name: data[port.type_str] for port in (*schema.inputs, *schema.outputs) if port.type_str in data}


def elements(types) -> Types:
    """Return the element types in texts like `seq(tensor(float))`, by their names in backend files."""
    names = (name for text in types for name in _TENSOR.findall(text))
    return frozenset(_ELEMENTS.get(name, name) for name in names) & frozenset(ORDER)


def text_of(rules: dict[tuple[str, str], dict[str, Types]]) -> str:
    """Return the file: a named type per distinct set, and operators with equal rules on one line."""
    names = named({types for ports in rules.values() for types in ports.values()})
    groups: dict[str, list[str]] = defaultdict(list)
    for (domain, name), ports in rules.items():
        if set(ports) <= {""}:
            value = f"{{types: {names[ports['']]}}}" if ports else "{}"
        else:
            value = f"{{types: {{{', '.join(f'{port}: {names[types]}' for port, types in ports.items())}}}}}"
        groups[value].append(f"{domain}::{name}" if domain else name)
    lines = [
        f"# Generated by backends/host/tools/generate_host_backend.py from onnxruntime {onnxruntime.__version__} "
        f"and onnx {onnx.__version__}; do not edit.",
        "backend: host",
        "summary: ONNX Runtime's CPU provider, and the onnx reference for what it lacks",
        "device: cpu",
        "precision: {high: float32}",
        f"opset: 1..{NEWEST_OPSET}",
        "dynamic: accept",
        "integers: accept",
        "types:",
        *(folded(f"  {name}: [{', '.join(t for t in ORDER if t in types)}]") for types, name in names.items()),
        "unlisted: refuse",
        "ops:",
        *(line for value, operators in sorted(groups.items()) for line in entries(sorted(operators), value)),
        "place: {strategy: host}",
        "emit: {engines: [onnxruntime-cpu, reference, kernels]}",
    ]
    return "\n".join(lines) + "\n"


def named(sets: set[Types]) -> dict[Types, str]:
    """Return a short stable name for every set of types: `t1` is the largest."""
    ordered = sorted(sets, key=lambda types: (-len(types), sorted(types)))
    return {types: f"t{number}" for number, types in enumerate(ordered, 1)}


def entries(operators: list[str], value: str) -> list[str]:
    """Return one entry per line of operators."""
    lines = textwrap.wrap(", ".join(operators), 110 - min(len(value), 40), break_long_words=False)
    return [folded(f"  {line.rstrip(',')}: {value}") for line in lines]


def folded(entry: str) -> str:
    """Wrap a long entry; YAML continues until the bracket closes."""
    return "\n".join(textwrap.wrap(entry, 118, subsequent_indent=" " * 8, break_long_words=False))


if __name__ == "__main__":
    main()
