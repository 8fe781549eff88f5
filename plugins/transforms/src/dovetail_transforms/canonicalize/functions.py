"""Inlining of model-local functions, after conversion to the model's opset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import asking
from dovetail_onnx.external import TensorLoader
from dovetail_onnx.source import check_source
from dovetail_onnx.topological_order import sort_function

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.canonicalize.opsets import (
    converter_misreads,
    default_version,
    raise_opset,
    same_definitions,
    set_default_version,
)

if TYPE_CHECKING:
    import onnx
    from dovetail.passes import Context


def inline_functions(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    """Return `proto` with every call of a model-local function inlined.

    A function that a chosen backend lists as an operator is kept: the backend computes it as a whole.

    A function may import another version of the default domain than the model, and a model that consists of calls may
    import none. If the operators of a function have the same definitions in both versions, its import is changed;
    otherwise a newer function raises the model's opset, and an older one is converted while it is inlined.

    Raises:
        DovetailError: A function cannot be converted to the model's opset.
    """
    import onnx.inliner

    if not proto.functions:
        return proto
    for function in proto.functions:
        sort_function(function)
    kept = [_key(function) for function in proto.functions if _is_listed(function, ctx)]
    count = len(proto.functions) - len(kept)
    proto = _of_one_version(proto, ctx)
    _import_all_domains(proto)
    convert = _differ(proto)
    try:
        if kept:
            proto = onnx.inliner.inline_selected_functions(proto, kept, exclude=True)
        else:
            proto = onnx.inliner.inline_local_functions(proto, convert_version=convert)
        if convert:
            _drop_duplicates(proto.graph)
            check_source(proto, TensorLoader("with its functions inlined", None))
    except Exception as error:  # the C++ inliner throws anything, and may leave an invalid model
        raise _refusal(proto, error) from error
    left = {_key(function) for function in proto.functions} - set(kept)
    if any((node.domain, node.op_type) in left for node in all_nodes(proto.graph)):
        raise _refusal(proto, None)
    whole = [type(one).FromString(one.SerializeToString()) for one in proto.functions if _key(one) in kept]
    del proto.functions[:]
    proto.functions.extend(whole)
    if count:
        ctx.remark("passed", "", "inline", f"{count} local function{'s' * (count != 1)} inlined")
    return proto


def _key(function: onnx.FunctionProto) -> tuple[str, str]:
    return function.domain, function.name


def _is_listed(function: onnx.FunctionProto, ctx: Context) -> bool:
    for backend in ctx.backends:
        with asking(ctx.registry, backend):
            if backend.lists(function.domain, function.name):
                return True
    return False


def _drop_duplicates(graph: onnx.GraphProto) -> None:
    """Drop duplicate nodes: the inliner repeats constants that it creates when it converts a function."""
    seen: set[bytes] = set()
    kept = []
    for node in graph.node:
        content = node.SerializeToString()
        if not node.output or content not in seen:
            kept.append(node)
        seen.add(content)
    if len(kept) < len(graph.node):
        copies = [type(node).FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)


def _of_one_version(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    """Convert functions and model to one version, as far as possible without converting a function."""
    import onnx.shape_inference

    versions = [version for function in proto.functions if (version := default_version(function.opset_import))]
    present = default_version(proto.opset_import)
    if present is None and versions:
        present = max(versions)
        set_default_version(proto, present)
        ctx.remark("passed", "", "import", f"the model imports opset {present}, as its functions do; it imported none")
    _take_version(proto.functions, present)
    newest = max((version for function in _others(proto, present) if (version := _version(function))), default=0)
    if present is not None and newest > present:
        if converter_misreads(all_nodes(proto.graph), present):
            raise _refusal(proto, None)
        try:
            # The converter needs types, and those of calls are known only by inference.
            proto = raise_opset(onnx.shape_inference.infer_shapes(proto), newest)
        except Exception as error:
            raise _refusal(proto, error) from error
        ctx.remark("passed", "", "opset-raise", f"opset raised from {present} to {newest}, as its functions need")
        present = newest
        _take_version(proto.functions, present)
    others = [
        (function, version) for function in _others(proto, present) if (version := _version(function)) is not None
    ]
    if any(converter_misreads(_nodes(function), version) for function, version in others):
        raise _refusal(proto, None)
    return onnx.shape_inference.infer_shapes(proto) if _differ(proto) else proto


def _take_version(functions: Iterable[onnx.FunctionProto], version: int | None) -> None:
    if version is None:
        return
    for function in functions:
        own = _version(function)
        if own is not None and own != version and same_definitions(_nodes(function), own, version):
            set_default_version(function, version)


def _version(function: onnx.FunctionProto) -> int | None:
    return default_version(function.opset_import)


def _others(proto: onnx.ModelProto, version: int | None) -> Iterator[onnx.FunctionProto]:
    """Yield the functions of another version than the model's."""
    return (function for function in proto.functions if _version(function) not in (None, version))


def _differ(proto: onnx.ModelProto) -> bool:
    return any(True for _ in _others(proto, default_version(proto.opset_import)))


def _import_all_domains(proto: onnx.ModelProto) -> None:
    """Import the domains of all functions into the model, as their nodes will be inlined there."""
    known = {entry.domain: entry.version for entry in proto.opset_import}
    for function in proto.functions:
        for entry in function.opset_import:
            if entry.domain in ("", "ai.onnx"):
                continue
            if known.setdefault(entry.domain, entry.version) != entry.version:
                entry.version = known[entry.domain]
    present = {entry.domain for entry in proto.opset_import}
    for domain, version in known.items():
        if domain not in present:
            proto.opset_import.add(domain=domain, version=version)


def _nodes(function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in function.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)
            for graph in attribute.graphs:
                yield from all_nodes(graph)


def _refusal(proto: onnx.ModelProto, error: Exception | None) -> DovetailError:
    present = default_version(proto.opset_import)
    function = next(_others(proto, present), None) or proto.functions[0]
    reason = f": {str(error).strip().splitlines()[0]}" if error is not None and str(error).strip() else ""
    what = f"function '{function.name}' of opset {_version(function)} cannot be inlined into opset {present}{reason}"
    return DovetailError(what, "export the model again with one opset, or with its functions inlined")
