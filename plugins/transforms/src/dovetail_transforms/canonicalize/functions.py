"""Inlining of model-local functions, after conversion to the model's opset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import asking
from dovetail_onnx.topological_order import sort_function

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.canonicalize.opsets import (
    default_version,
    same_definitions,
    set_default_version,
)
from dovetail_transforms.raising import NotRaised, raise_function, raise_opset

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
    _write_defaults(proto)
    _bring_to_one_version(proto, ctx)
    _import_all_domains(proto)
    try:
        if kept:
            proto = onnx.inliner.inline_selected_functions(proto, kept, exclude=True)
        else:
            proto = onnx.inliner.inline_local_functions(proto)
    except Exception as error:  # the C++ inliner throws anything
        raise _refusal(proto.functions[0], f": {_first_line(error)}") from error
    left = {_key(function) for function in proto.functions} - set(kept)
    if any((node.domain, node.op_type) in left for node in all_nodes(proto.graph)):
        raise _refusal(next(function for function in proto.functions if _key(function) in left), "")
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


def _write_defaults(proto: onnx.ModelProto) -> None:
    """Write out the attributes that calls leave at a function's default: onnx's inliner forgets these."""
    defaults = {_key(function): function.attribute_proto for function in proto.functions if function.attribute_proto}
    if not defaults:
        return
    for node in (*all_nodes(proto.graph), *(node for function in proto.functions for node in _nodes(function))):
        given = {attribute.name for attribute in node.attribute}
        for default in defaults.get((node.domain, node.op_type), ()):
            if default.name not in given:
                node.attribute.append(default)


def _bring_to_one_version(proto: onnx.ModelProto, ctx: Context) -> None:
    """Bring the model and its functions to one version of the default domain, in place."""
    versions = [version for function in proto.functions if (version := _version(function))]
    present = default_version(proto.opset_import)
    if present is None and versions:
        present = max(versions)
        set_default_version(proto, present)
        ctx.remark("passed", "", "import", f"the model imports opset {present}, as its functions do; it imported none")
    if present is None:
        return
    _take_version(proto.functions, present)
    newest = max((version for function in _others(proto, present) if (version := _version(function))), default=0)
    if newest > present:
        try:
            raise_opset(proto, present, newest)
        except NotRaised as refused:
            function = next(one for one in proto.functions if _version(one) == newest)
            raise _refusal(function, f" of opset {present}: {refused.message}") from refused
        set_default_version(proto, newest)
        ctx.remark("passed", "", "opset-raise", f"opset raised from {present} to {newest}, as its functions need")
        present = newest
        _take_version(proto.functions, present)
    for function in _others(proto, present):
        own = _version(function)
        assert own is not None
        try:
            raise_function(function, own, present)
        except NotRaised as refused:
            raise _refusal(function, f" of opset {present}: {refused.message}") from refused
        set_default_version(function, present)


def _take_version(functions: Iterable[onnx.FunctionProto], version: int) -> None:
    for function in functions:
        own = _version(function)
        if own is not None and own != version and same_definitions(_nodes(function), own, version):
            set_default_version(function, version)


def _version(function: onnx.FunctionProto) -> int | None:
    return default_version(function.opset_import)


def _others(proto: onnx.ModelProto, version: int | None) -> Iterator[onnx.FunctionProto]:
    """Yield the functions of another version than the model's."""
    return (function for function in proto.functions if _version(function) not in (None, version))


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


def _refusal(function: onnx.FunctionProto, reason: str) -> DovetailError:
    what = f"function '{function.name}' of opset {_version(function)} cannot be inlined into a model{reason}"
    return DovetailError(what, "export the model again with one opset, or with its functions inlined")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
