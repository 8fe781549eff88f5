"""Merged decoders, as Optimum writes them: an If between the decoder of prompts and that of further tokens.

Backends with integers quantize no bodies, and some engines run no If with open extents. The same decoders are separate
files in the folder, or are taken out of it (`splitting.py`), so these are compiled, and their results replace the
branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import is_onnx

if TYPE_CHECKING:
    import onnx

JOINED = ("decoder", "decoder_with_past")
"""The parts of a folder from which a merged decoder is built."""
BRANCHES = ("else_branch", "then_branch")
"""The branches that they are, in this order: where the condition holds, there are caches to go on from."""
_FIRST, _STEP = BRANCHES


def is_merged(model: onnx.ModelProto) -> bool:
    """Check whether a model is one If on one of its inputs, with all of its outputs."""
    graph = model.graph
    if len(graph.node) != 1 or graph.node[0].op_type != "If" or not is_onnx(graph.node[0]):
        return False
    (node,) = graph.node
    return node.input[0] in {value.name for value in graph.input} and set(node.output) == {
        value.name for value in graph.output
    }


def joined(source: onnx.ModelProto, first: onnx.ModelProto, step: onnx.ModelProto) -> onnx.ModelProto:
    """Return the merged decoder of two results.

    Equal weights of the two become one, and stay where they are: in the model, or at their place in another file.

    Args:
        source: The merged decoder that was compiled; see `is_merged`.
        first: The result of the decoder of prompts.
        step: The result of the decoder of further tokens, which may lack outputs that are constants in its branch.

    Raises:
        DovetailError: The results are not those of the branches.
    """
    import onnx

    (node,) = source.graph.node
    branches = {attribute.name: attribute.g for attribute in node.attribute}
    versions = [{entry.domain: entry.version for entry in one.opset_import} for one in (first, step)]
    if any(versions[0].get(domain, version) != version for domain, version in versions[1].items()):
        raise _not_joined("its two parts have different opsets")
    # Types follow the results: caches may have become integers.
    types = {value.name: value for one in (step, first) for value in (*one.graph.input, *one.graph.output)}
    graph = onnx.GraphProto(name=source.graph.name)
    graph.input.extend(types.get(value.name, value) for value in source.graph.input)
    graph.output.extend(types.get(value.name, value) for value in source.graph.output)
    given = {value.name for value in graph.input}
    made = onnx.helper.make_node("If", [node.input[0]], list(node.output), node.name)
    held: dict[bytes, str] = {}
    for name, result in ((_STEP, step), (_FIRST, first)):
        if lost := {value.name for value in result.graph.input} - given:
            raise _not_joined(f"one of its parts has an input '{min(lost)}' that it does not have")
        body = _Body(result.graph, name.removesuffix("_branch"), given).moved(graph, held)
        body.output.extend(_outputs(body, graph.output, name, branches[name]))
        made.attribute.append(onnx.helper.make_attribute(name, body))
    graph.node.append(made)
    model = onnx.ModelProto(ir_version=max(first.ir_version, step.ir_version), graph=graph)
    model.producer_name, model.producer_version = first.producer_name, first.producer_version
    for domain, version in (versions[0] | versions[1]).items():
        model.opset_import.add(domain=domain, version=version)
    known = set()
    for function in (*first.functions, *step.functions):
        key = function.domain, function.name, function.overload
        if key not in known:
            known.add(key)
            model.functions.append(function)
    return model


class _Body:
    """A branch that is made of the graph of a result, with names of its own."""

    def __init__(self, graph: onnx.GraphProto, prefix: str, given: set[str]) -> None:
        self._graph, self._prefix, self._given = graph, prefix, given

    def moved(self, outer: onnx.GraphProto, held: dict[bytes, str]) -> onnx.GraphProto:
        """Return the branch without outputs; its weights go to the outer graph, equal ones once.

        Weights that are dequantized stay in the branch: ONNX Runtime makes one operator of these and of the products
        that read them, and does not load a model in which they are elsewhere.
        """
        import onnx

        names, inside, own = {}, _dequantized(self._graph), []
        for tensor in self._graph.initializer:
            renamed = onnx.TensorProto.FromString(tensor.SerializeToString())
            if tensor.name in inside:
                names[tensor.name] = renamed.name = self._own(tensor.name)
                own.append(renamed)
                continue
            renamed.name = ""
            key = renamed.SerializeToString(deterministic=True)
            if key not in held:
                held[key] = renamed.name = self._own(tensor.name)
                outer.initializer.append(renamed)
            names[tensor.name] = held[key]
        body = onnx.GraphProto(name=self._prefix, node=self._graph.node, initializer=own)
        self._rename(body, names)
        return body

    def _own(self, name: str) -> str:
        return name if not name or name in self._given else f"{self._prefix}/{name}"

    def _rename(self, graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        for node in graph.node:
            node.name = self._own(node.name) if node.name else ""
            for ports in (node.input, node.output):
                for at, name in enumerate(ports):
                    ports[at] = names.get(name, self._own(name))
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self._rename_inner(attribute.g, names)

    def _rename_inner(self, graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        own = {tensor.name: self._own(tensor.name) for tensor in graph.initializer}
        for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            entry.name = self._own(entry.name)
        self._rename(graph, {name: new for name, new in names.items() if name not in own})


def _dequantized(graph: onnx.GraphProto) -> set[str]:
    """Return the names of what nodes that dequantize read."""
    nodes = (node for node in graph.node if node.op_type == "DequantizeLinear" and is_onnx(node))
    return {name for node in nodes for name in node.input}


def _outputs(
    body: onnx.GraphProto, wanted: Iterable[onnx.ValueInfoProto], name: str, branch: onnx.GraphProto
) -> Iterator[onnx.ValueInfoProto]:
    """Yield the outputs of a branch in the order of the If; those that only the source has are constants there."""
    import onnx

    computed = {output for node in body.node for output in node.output}
    prefix = name.removesuffix("_branch")
    of_source = {output: node for node in branch.node for output in node.output}
    for output, declared in zip(wanted, branch.output):
        if (own := f"{prefix}/{output.name}") not in computed:
            constant = of_source.get(declared.name)
            if constant is None or constant.op_type != "Constant":
                raise _not_joined(f"one of its parts lacks the output '{output.name}'")
            copy = body.node.add()
            copy.CopyFrom(constant)
            copy.output[0] = own
        value = onnx.ValueInfoProto(name=own)
        value.type.tensor_type.elem_type = output.type.tensor_type.elem_type
        yield value


def _not_joined(why: str) -> DovetailError:
    return DovetailError(f"the merged decoder cannot be put together: {why}", "export the whole model again")
