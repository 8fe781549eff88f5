"""Inlining of model-local functions, after conversion to the model's opset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin.loading import asking
from dovetail.text import pluralize
from dovetail_onnx.topological_order import sort_function

from dovetail_transforms.canonicalize.inlining import Inliner, key_of, nodes_of
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
    otherwise a newer function raises the model's opset, and an older one is raised while it is inlined.

    Raises:
        DovetailError: A function cannot be converted to the model's opset.
    """
    if not proto.functions:
        return proto
    for function in proto.functions:
        sort_function(function)
    _bring_to_one_version(proto, ctx)
    _import_all_domains(proto)
    kept, inlined = [], {}
    for function in proto.functions:
        if _is_listed(function, ctx):
            kept.append(function)
        else:
            inlined[key_of(function)] = function
    present = default_version(proto.opset_import)
    inliner = Inliner(inlined, proto.graph, lambda function: _raise(function, present))
    for holder in (proto.graph, *kept):
        inliner.inline(holder)
    for function in kept:
        _raise(function, present)
    whole = [type(one).FromString(one.SerializeToString()) for one in kept]
    del proto.functions[:]
    proto.functions.extend(whole)
    if inlined:
        ctx.remark("passed", "", "inline", f"{pluralize(len(inlined), 'local function')} inlined")
    return proto


def _is_listed(function: onnx.FunctionProto, ctx: Context) -> bool:
    for backend in ctx.backends:
        with asking(ctx.registry, backend):
            if backend.lists(function.domain, function.name):
                return True
    return False


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


def _raise(function: onnx.FunctionProto, wanted: int | None) -> None:
    own = _version(function)
    if own is None or wanted is None or own == wanted:
        return
    try:
        raise_function(function, own, wanted)
    except NotRaised as refused:
        raise _refusal(function, f" of opset {wanted}: {refused.message}") from refused
    set_default_version(function, wanted)


def _take_version(functions: Iterable[onnx.FunctionProto], version: int) -> None:
    for function in functions:
        own = _version(function)
        if own is not None and own != version and same_definitions(nodes_of(function), own, version):
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


def _refusal(function: onnx.FunctionProto, reason: str) -> DovetailError:
    what = f"function '{function.name}' of opset {_version(function)} cannot be inlined into a model{reason}"
    return DovetailError(what, "export the model again with one opset, or with its functions inlined")
