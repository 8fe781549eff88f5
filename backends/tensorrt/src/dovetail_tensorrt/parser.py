"""Verdict of the real parser on a model: errors by node, and the types that it assigns."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.ir import all_nodes, bodies
from dovetail.plugin import TemporaryFolder

from dovetail_tensorrt.libraries import Library, make_logger, plain
from dovetail_tensorrt.serializing import parse_source

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


LOCK = threading.RLock()
"""TensorRT's builder and parser are not thread-safe."""


@dataclass(frozen=True)
class ParserError:
    """An error of the parser about a model.

    Attributes:
        node: Name of the rejected node of the main graph; empty if the parser names none.
        operator: Its operator, or that of the node in its body.
        text: The reason, in one line.
    """

    node: str
    operator: str
    text: str

    def __str__(self) -> str:
        what = f"node '{self.node}' ({self.operator})" if self.node else "the model"
        return f"{what}: {self.text}"


@dataclass(frozen=True)
class NetworkTensor:
    """An input or output of the network.

    Attributes:
        name: Its name, which is that of the value.
        type: TensorRT's name of its type: `HALF`.
        shape: Its extents; -1 for an open one.
        is_shape: Whether its numbers are used as extents, so that a profile needs its values.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    is_shape: bool


@dataclass(frozen=True)
class NetworkLayer:
    """A layer of the network: its name, TensorRT's layer kind, and the types of its outputs."""

    name: str
    kind: str
    types: tuple[str, ...]


@dataclass(frozen=True)
class ParserVerdict:
    """Result of parsing a model.

    Attributes:
        errors: All errors; the parser continues after a rejected node.
        inputs: The inputs of the network.
        outputs: Its outputs.
        layers: Its layers; the network is strongly typed, so it computes in their types.
        warnings: Warnings, one line each.
    """

    errors: tuple[ParserError, ...] = ()
    inputs: tuple[NetworkTensor, ...] = ()
    outputs: tuple[NetworkTensor, ...] = ()
    layers: tuple[NetworkLayer, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the parser accepts the model."""
        return not self.errors


@dataclass
class ParsedModel:
    """A parsed model, with the TensorRT objects that must live until it is built."""

    library: Library
    verdict: ParserVerdict
    logger: Any
    builder: Any
    network: Any
    held: tuple = field(default=(), repr=False)


def parse(model: Model, library: Library) -> ParsedModel:
    """Parse a model without building it. Weights of more than a few MiB are streamed into a file for the parser.

    Args:
        model: A model without calls of region functions, such as a result of `inlined`.
        library: A TensorRT.
    """
    with TemporaryFolder("tensorrt") as folder:
        source = parse_source(model, folder)
        return _parsed(source, library, list(model.graph))


def _parsed(source: bytes | Path, library: Library, nodes: Iterable[ir.Node]) -> ParsedModel:
    trt = library.trt
    with LOCK:
        logger = make_logger(trt)
        builder = trt.Builder(logger)
        network = builder.create_network(_flags(trt))
        parser = trt.OnnxParser(network, logger)
        ok = parser.parse(source) if isinstance(source, bytes) else parser.parse_from_file(str(source))
        errors = tuple(_errors(parser, list(nodes)))
        said = logger.taken()
        if not ok and not errors:
            text = next((plain(text) for kind, text in said if kind == "error"), "it gives no reason")
            errors = (ParserError("", "", text),)
        warnings = tuple(dict.fromkeys(plain(text) for kind, text in said if kind == "warning"))
        if errors:
            return ParsedModel(library, ParserVerdict(errors, warnings=warnings), logger, builder, network, (parser,))
        verdict = ParserVerdict(
            (),
            tuple(_tensor(network.get_input(i)) for i in range(network.num_inputs)),
            tuple(_tensor(network.get_output(i)) for i in range(network.num_outputs)),
            tuple(map(_layer, (network.get_layer(i) for i in range(network.num_layers)))),
            warnings,
        )
        return ParsedModel(library, verdict, logger, builder, network, (parser,))


def _flags(trt: Any) -> int:
    """Return the flag for strong typing, which is the only mode from TensorRT 11 on."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _errors(parser: Any, nodes: list[ir.Node]) -> Iterable[ParserError]:
    seen = set()
    home: dict[str, str] = {}
    for node in nodes if parser.num_errors else ():
        inner = [inside for body in bodies(node) for inside in all_nodes(body)]
        for held in (node.name, *(one.name for one in inner)):
            home.setdefault(held or "", node.name or "")
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        said, position = error.node_name(), error.node()
        name = home.get(said, said) if said or not 0 <= position < len(nodes) else nodes[position].name or ""
        operator, text = error.node_operator(), plain(error.desc())
        if text in ("", "false"):
            text = f"the parser has no {operator}" if operator else "the parser refuses it without a reason"
        if (name, text) not in seen:
            seen.add((name, text))
            yield ParserError(name, operator, text)


def _tensor(tensor: Any) -> NetworkTensor:
    return NetworkTensor(tensor.name, tensor.dtype.name, tuple(tensor.shape), bool(tensor.is_shape_tensor))


def _layer(layer: Any) -> NetworkLayer:
    outputs = (layer.get_output(index) for index in range(layer.num_outputs))
    return NetworkLayer(
        layer.name, layer.type.name, tuple(output.dtype.name for output in outputs if output is not None)
    )
