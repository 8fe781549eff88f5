"""Executed precisions from OpenVINO's runtime model, and errors from its exceptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import float_name, name_of
from dovetail.plugin import EngineError, Executed
from dovetail_runtime import NOT_REPORTED, follow_fusions, has_bfloat16, node_key

if TYPE_CHECKING:
    import onnx_ir as ir
    import openvino as ov
    from dovetail.ir import Model


_NAMES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "boolean": "bool",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32",
    "u16": "uint16", "u8": "uint8",
}  # fmt: skip
_FLOATS = frozenset({"f64", "f32", "f16", "bf16"})
_SUFFIXES = (".0", "/WithoutBiases")
_IO_LAYERS = frozenset({"Input", "Output", "Const", "Reorder"})


def executed_precisions(model: Model, runtime: ov.Model) -> dict[str, Executed]:
    """Return how every node was executed; nodes of bodies are not reported."""
    nodes = list(model.graph)
    reported = _reported(nodes, runtime)
    folded = _folded(nodes, reported)
    answers = {node_key(node): NOT_REPORTED for node in model.nodes()}
    answers.update(follow_fusions(nodes, reported))
    answers.update({key: Executed("", "folded") for key in folded})
    return answers


def _reported(nodes: list[ir.Node], runtime: ov.Model) -> dict[str, str]:
    """Return the precision of each node that a layer of the runtime model is named after.

    A layer has the name of its node, or of the value if that is an output of the model. Names of added layers end in
    `.0`, and that of a product without its bias in `/WithoutBiases`.
    """
    owners = {output.name: node for node in nodes for output in node.outputs if output.name}
    owners.update({node.name: node for node in nodes if node.name})
    reported: dict[str, str] = {}
    for layer in runtime.get_ordered_ops():
        info = {key: value.astype(str) for key, value in layer.get_rt_info().items() if key in _KEYS}
        kind = info.get("layerType", "")
        if kind in _IO_LAYERS:
            continue
        for name in info.get("originalLayersNames", "").split(","):
            node = owners.get(_base(name.strip(), owners))
            # A Convert that OpenVINO inserts next to a node has the node's name, but not its precision.
            if node is not None and (kind != "Convert" or node.op_type in ("Cast", "CastLike")):
                reported[node_key(node)] = _precision(node, info)
    return reported


_KEYS = frozenset({"layerType", "originalLayersNames", "outputPrecisions", "primitiveType", "runtimePrecision"})


def _precision(node: ir.Node, info: dict[str, str]) -> str:
    """Return the precision that a layer reports for `node`.

    A generated kernel (Subgraph) reports the type of its first input, which may be a mask. A product with weights of
    few bits (FullyConnected) reports their type, even where it converts them and multiplies floats. In these
    cases the float type is part of the kernel's name (`jit_avx512_bf16`), or that of the generated kernel's outputs.
    """
    said, layer = info.get("runtimePrecision", ""), info.get("layerType")
    kernel = info.get("primitiveType", "").rpartition("_")[2]
    if layer == "Subgraph" and said not in _FLOATS and _computes_floats(node):
        said = next((name for name in (*info.get("outputPrecisions", "").split(","), kernel) if name in _FLOATS), said)
    elif layer == "FullyConnected" and kernel in _FLOATS:
        said = kernel
    if said == "bf16" and has_bfloat16() is False:  # the kernel reads or gives it, and computes in float32
        said = "f32"
    return _NAMES.get(said, said)


def _computes_floats(node: ir.Node) -> bool:
    return any(value is not None and float_name(value) for value in (*node.inputs, *node.outputs))


def _base(name: str, owners: dict[str, ir.Node]) -> str:
    while name not in owners and name.endswith(_SUFFIXES):
        name = next(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))
    return name


def _folded(nodes: list[ir.Node], reported: dict[str, str]) -> set[str]:
    """Return the nodes with constant inputs only: OpenVINO folds them when it compiles."""
    folded: set[str] = set()
    constant: set[ir.Value] = set()
    for node in nodes:
        key = node_key(node)
        if key not in reported and all(v is None or v in constant or v.is_initializer() for v in node.inputs):
            folded.add(key)
            constant.update(node.outputs)
    return folded


_NODE = re.compile(r"'<Node\((\w+)\): ([^>]*)>'|Operation name: (\S+)|node with name '([^']*)'")
# The operators that failed, in alphabetic order: some do so because of others.
_SECTION = re.compile(r" ?-- \w+-\d+ with a message: | Summary: ")
_WHILE = re.compile(
    r"While validating ONNX node '<[^>]*>': |While validating node '.*?' with friendly_name '[^']*': |"
    r"Exception from \S+: |FrontEnd API failed with \w+: ?"
)
# Where an exception comes from says nothing to a reader.
_ORIGIN = re.compile(r"CALLBACK HAS THROWN:? ?|\[ ?[A-Z_]+ ?\] ?|Unexpected: ")
_RANK = re.compile(r"CPU plug-in doesn't support (\w+) operation with dynamic rank\. Operation name: (\S+)")
_CHECK = re.compile(r"Check '(.*?)' failed at \S+:\d+: ?")
_SHOWN = 300
"""Maximum length of a reason, in characters."""


# The name that OpenVINO gives to an operation: its type, and a counter that goes on from one model to the next.
_COUNTED = re.compile(r"\b([A-Za-z]\w*?)_\d+\b")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b ?")


def refusal(error: Exception, verb: str, model: Model, engine: str = "openvino-cpu") -> DovetailError:
    """Return the error of an engine for an exception of OpenVINO.

    The text is the same for every compilation of a model: counters in names that OpenVINO invents are left out.

    Args:
        error: The exception.
        verb: What the engine does to the node: `refuses`, `fails at`.
        model: The region, whose own names stay as they are.
        engine: The name of the engine.
    """
    if isinstance(error, DovetailError):
        return error
    known = {name for node in model.nodes() for name in (node.name, *(value.name for value in node.outputs))}
    known.update(value.name for _, graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values()))
    text = _COUNTED.sub(lambda name: name[0] if name[0] in known else name[1], " ".join(str(error).split()))
    text = _ADDRESS.sub("", text)
    node, said = _first(_SECTION.split(text), model)
    what = f"the node of '{node}'" if node else "the region"
    return EngineError(f"{engine} {verb} {what}: {_reason(said)[:_SHOWN]}", node=node)


def _first(sections: list[str], model: Model) -> tuple[str, str]:
    """Return the node that fails first, of those that a message names in sections, and what is said of it."""
    order = {name: at for at, node in enumerate(model.nodes()) for name in (node.name, *map(name_of, node.outputs))}
    named = []
    for section in sections:
        found = _NODE.search(section)
        node = next((part for part in reversed(found.groups()) if part), "") if found else ""
        if node:
            named.append((order.get(node, len(order)), node, section))
    if named:
        _, node, section = min(named, key=lambda entry: entry[0])
        return node, section
    # The first section says that something failed, the next one what.
    return "", sections[1] if len(sections) > 1 else sections[0]


def _reason(text: str) -> str:
    """Extract the readable sentence of a message, or the failed condition if there is none."""
    if (rank := _RANK.search(text)) is not None:
        return f"OpenVINO's CPU plugin needs to know how many axes every value has, and '{rank[2]}' leaves that open"
    said = _ORIGIN.sub("", _WHILE.sub("", text))
    failed = _CHECK.search(said)
    sentence = _CHECK.sub("", said).strip()
    return sentence or (f"it needs {failed[1]}" if failed else text)
