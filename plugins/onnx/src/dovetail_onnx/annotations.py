"""Annotations of nodes as `metadata_props`, the only place for them in ONNX files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import Format, all_nodes
from dovetail.planning import Placement, get_placement, kind_of, origin_of, set_kind, set_origin, set_placement
from dovetail.plugin.loading import FUNCTIONS

from dovetail_onnx.files.parsing import parse_json

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


_BACKEND, _PRECISION, _PORTS, _REGION, _KIND, _ORIGIN = (
    f"dovetail.{name}" for name in ("backend", "precision", "ports", "region", "kind", "origin")
)
_KEYS = (_BACKEND, _PRECISION, _PORTS, _REGION, _KIND, _ORIGIN)


def mirror_annotations(model: Model) -> None:
    """Write the placements, kinds and origins of all nodes into their `metadata_props`."""
    if model.untouched:
        return
    for node in _annotated_nodes(model):
        if node.meta:
            _mirror(node)


def _annotated_nodes(model: Model) -> Iterator[ir.Node]:
    """Yield all nodes, including those of functions that hold regions."""
    yield from model.nodes()
    for function in model.ir.functions.values():
        if function.domain.startswith(FUNCTIONS):
            yield from all_nodes(function.graph)


def _mirror(node: ir.Node) -> None:
    texts: dict[str, str] = {}
    placement = get_placement(node)
    if placement is not None:
        texts[_BACKEND] = placement.backend
        texts[_PRECISION] = str(placement.precision or "")
        texts[_KIND] = kind_of(node)
        if placement.ports:
            texts[_PORTS] = json.dumps({port: str(format_) for port, format_ in sorted(placement.ports.items())})
        if placement.region is not None:
            texts[_REGION] = str(placement.region)
    origin = origin_of(node)
    if origin and origin != (node.name,):
        texts[_ORIGIN] = json.dumps(list(origin))
    props = node.metadata_props
    for key in _KEYS if props else ():
        props.pop(key, None)
    props |= texts


def read_annotations(model: Model) -> None:
    """Read the annotations that `mirror_annotations` wrote.

    Raises:
        DovetailError: An annotation is malformed; names file and node.
    """
    for node in _annotated_nodes(model):
        props = node.metadata_props
        if not props:
            continue
        try:
            if _BACKEND in props:
                region, ports = props.get(_REGION), _mapping(props.get(_PORTS, "{}"))
                precision = Format.of(text) if (text := props.get(_PRECISION)) else None
                set_placement(node, Placement(props[_BACKEND], precision, ports, int(region) if region else None))
                set_kind(node, props.get(_KIND, "data"))
            if _ORIGIN in props:
                set_origin(node, _names(props[_ORIGIN]))
        except (ValueError, UsageError) as error:
            raise DovetailError(
                f"{model.path or 'the model'}: node '{node.name}': an annotation of Dovetail cannot be read: {error}",
                "compile the source model again, or remove the entries `dovetail.*` from the node's metadata_props",
            ) from None


def _mapping(text: str) -> dict[str, Format]:
    value = parse_json(text)
    if not isinstance(value, dict) or not all(isinstance(kind, str) for kind in value.values()):
        raise ValueError(f"{_PORTS} is not a mapping of port to type")
    return {port: Format.of(kind) for port, kind in value.items()}


def _names(text: str) -> tuple[str, ...]:
    value = parse_json(text)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{_ORIGIN} is not a list of names")
    return tuple(value)
