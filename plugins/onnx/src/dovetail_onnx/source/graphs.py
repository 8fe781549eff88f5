"""Checks of graphs: names are defined once and visible where they are read, nodes are valid, types are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import is_onnx

from dovetail_onnx.source.nodes import GRAPH, GRAPHS, Operators, attribute_problem, type_problem, values_problem
from dovetail_onnx.topological_order import bodies_of, label_of, topological_order
from dovetail_onnx.type_gaps import densify_attributes, densify_initializers
from dovetail_onnx.wire import GRAPH_DEPTH

if TYPE_CHECKING:
    import onnx

    from dovetail_onnx.external import TensorLoader
    from dovetail_onnx.source.functions import Functions
    from dovetail_onnx.source.problems import Problems


_SCAN_WITHOUT_BATCH = 9


def named_bodies_of(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield the bodies of `node` with the names of their attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for graph in attribute.graphs:
            yield attribute.name, graph


def body_problem(node: onnx.NodeProto, version: int) -> str:
    """Return the problem with inputs and outputs of a standard operator's bodies; empty if there is none.

    Attributes were checked against the schema before. In a function they may be references, which are not checked.
    """
    if any(attribute.ref_attr_name for attribute in node.attribute):
        return ""
    rule = _RULES.get(node.op_type)
    return rule(node, dict(named_bodies_of(node)), version) if rule else ""


def _if(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], _: int) -> str:
    for name, body in bodies.items():
        if body.input:
            return f"has a body '{name}' with {len(body.input)} inputs, where none is taken"
        if problem := _outputs(name, body, len(node.output)):
            return problem
    return ""


def _loop(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], _: int) -> str:
    body, carried = bodies["body"], len(node.input) - 2
    if len(body.input) != 2 + carried:
        return f"carries {carried} values, so its body takes {2 + carried} inputs, not {len(body.input)}"
    if len(body.output) < 1 + carried or len(body.output) - 1 < len(node.output):
        needed = 1 + max(carried, len(node.output))
        return f"needs a body with at least {needed} outputs, and that has {len(body.output)}"
    return ""


def _scan(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], version: int) -> str:
    body = bodies["body"]
    taken = len(node.input) - (version < _SCAN_WITHOUT_BATCH)
    scanned = next(attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs")
    if not 1 <= scanned <= taken:
        return f"scans {scanned} of its {taken} inputs"
    if len(body.input) != taken:
        return f"has {taken} inputs, and a body with {len(body.input)}"
    if len(body.output) < taken - scanned:
        return f"carries {taken - scanned} states, and has a body with {len(body.output)} outputs"
    return _outputs("body", body, len(node.output))


def _map(node: onnx.NodeProto, bodies: dict[str, onnx.GraphProto], _: int) -> str:
    body = bodies["body"]
    if len(body.input) != len(node.input):
        return f"has {len(node.input)} inputs, and a body with {len(body.input)}"
    return _outputs("body", body, len(node.output))


def _outputs(name: str, body: onnx.GraphProto, wanted: int) -> str:
    if len(body.output) == wanted:
        return ""
    return f"has {wanted} outputs, and a body '{name}' with {len(body.output)}"


# Schemas do not describe the inputs and outputs of bodies.
_RULES = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _map}


# Types of attributes that contain tensors or graphs, which are checked beyond the attribute itself.
_HOLDING = frozenset({4, 5, 9, 10, 11, 12})
_REMEMBERED_UP_TO = 256  # bytes; larger attributes hold tensors or bodies and rarely repeat


def check_main_graph(
    proto: onnx.ModelProto, opsets: Mapping[str, int], functions: Functions, loader: TensorLoader, problems: Problems
) -> None:
    """Check the main graph and all bodies in it. Its own initializers were checked before."""
    graph, rules = proto.graph, GraphRules(opsets, functions, loader, problems)
    rules.devices = frozenset(configuration.name for configuration in proto.configuration)
    for value in graph.input:
        if problem := type_problem(value.type, needed=True):
            problems.add(f"graph input '{value.name}' {problem}")
    rules.graph(graph, 0, checked=True)


def check_training(
    proto: onnx.ModelProto, opsets: Mapping[str, int], functions: Functions, loader: TensorLoader, problems: Problems
) -> None:
    """Check the graphs of the training information, which see the names of the main graph."""
    if proto.training_info:
        for info in proto.training_info:
            rules = GraphRules(opsets, functions, loader, problems)
            rules.visible |= _defined(proto.graph)
            rules.graph(info.initialization, 1)
            rules.visible |= _defined(info.initialization)
            rules.graph(info.algorithm, 1)


class GraphRules:
    """Checks graphs and nodes that share one set of imports.

    Args:
        opsets: The version of each imported domain.
        functions: The local functions that nodes may call.
        loader: Checks tensors.
        problems: Collects problems.
        function: Label of the function whose body is checked; nodes may refer to its attributes.

    Attributes:
        devices: Names of the device configurations that the model declares.
        visible: Outer names that the current graph sees. One set that grows and shrinks: a copy per body would be
            quadratic.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        functions: Functions,
        loader: TensorLoader,
        problems: Problems,
        function: str = "",
    ):
        self.devices: frozenset[str] = frozenset()
        self.visible: set[str] = set()
        self._opsets = opsets
        self._operators = Operators(opsets, functions)
        self._loader = loader
        self._problems = problems
        self._function = function
        self._where = f" of {function}" if function else ""
        self._calls = bool(functions)
        self._verdicts: dict[tuple, tuple[str, bool]] = {}

    def graph(self, graph: onnx.GraphProto, depth: int, checked: bool = False) -> None:
        """Check a graph and all bodies in it.

        Args:
            graph: The graph.
            depth: Its nesting depth.
            checked: Whether its initializers were checked before.
        """
        if depth > GRAPH_DEPTH:
            raise DovetailError(
                f"{self._loader.name}: bodies are nested deeper than {GRAPH_DEPTH} levels",
                "models nest bodies two or three levels deep; this file is damaged or made to do harm",
            )
        if not checked:
            for tensor in graph.initializer:
                self._loader.check_and_inline(tensor, f"initializer '{tensor.name}'")
        densify_initializers(graph, self._loader)
        label = f"graph '{graph.name}'" if depth else "the graph"
        given = self._given(graph, label)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if problem := type_problem(value.type):
                self._problems.add(f"value '{value.name}' {problem}")
        defined = self.nodes(graph.node, given, depth)
        inputs = {value.name: value for value in graph.input}
        ranks = {name: _rank(value) for name, value in inputs.items()}
        for value in graph.output:
            if value.name in inputs and not value.type.WhichOneof("value"):
                # Both are one value, and the last declaration wins.
                value.type.CopyFrom(inputs[value.name].type)
            rank, given_rank = _rank(value), ranks.get(value.name)
            if rank is not None and given_rank is not None and rank != given_rank:
                what = f"'{value.name}' of {label} has rank {given_rank} as an input"
                self._problems.add(f"{what} and rank {rank} as an output")
            if value.name not in defined:
                what = f"output '{value.name}' of {label}"
                if not value.name:
                    self._problems.add(f"an output of {label} has no name")
                elif value.name in self.visible:
                    self._problems.add(f"{what} is a value from outside", "put an Identity node between them")
                else:
                    self._problems.add(f"{what} is not defined")

    def nodes(self, nodes: Sequence[onnx.NodeProto], given: set[str], depth: int) -> set[str]:
        """Check the nodes of one graph or function.

        Returns:
            All names that it defines, including `given`.
        """
        # Empty names are omitted ports. This loop dominates the time of opening a large model.
        defined, outer = given | {""}, self.visible
        holders, late, judge = [], [], self._node
        for node in nodes:
            inputs, outputs = node.input[:], node.output[:]
            if not defined.issuperset(inputs):
                late += [(node, name) for name in inputs if name not in defined and name not in outer]
            if not defined.isdisjoint(outputs) or len(outputs) > 1:
                self._redefinition(node, [name for name in outputs if name], defined)
            defined.update(outputs)
            if judge(node, inputs, len(outputs)):
                holders.append(node)
            if node.device_configurations:
                self._devices(node)
        defined.discard("")
        if holders:
            added = defined - outer
            outer |= added
            for node in holders:
                for body in bodies_of(node):
                    self.graph(body, depth + 1)
            outer -= added
        undefined = [(node, name) for node, name in late if name not in defined]
        for node, name in undefined:
            self._problem(node, f"reads '{name}', which nothing defines")
        # Only nodes out of order can form a cycle; captures of bodies are not in `late`.
        if (late or holders) and not self._problems.count:
            self._cycles(nodes)
        return defined

    def _given(self, graph: onnx.GraphProto, label: str) -> set[str]:
        given: set[str] = set()
        for what, entries in (("input", graph.input), ("initializer", graph.initializer)):
            names = [entry.name for entry in entries]
            if "" in names:
                self._problems.add(f"{label} has an {what} without a name")
            for name in _repeated(names):
                self._problems.add(f"{label} has two {what}s called '{name}'")
            given.update(names)
        return given

    def _devices(self, node: onnx.NodeProto) -> None:
        for wanted in node.device_configurations:
            if wanted.configuration_id not in self.devices:
                self._problem(
                    node, f"is meant for devices '{wanted.configuration_id}', which the model does not declare"
                )
            for spec in wanted.sharding_spec:
                if spec.tensor_name not in (*node.input, *node.output) or not spec.tensor_name:
                    self._problem(node, f"spreads '{spec.tensor_name}' over devices, which is none of its values")

    def _redefinition(self, node: onnx.NodeProto, outputs: list[str], defined: set[str]) -> None:
        for name in dict.fromkeys([*(name for name in outputs if name in defined), *_repeated(outputs)]):
            self._problem(node, f"defines '{name}', which is defined already")

    def _node(self, node: onnx.NodeProto, inputs: list[str], outputs: int) -> bool:
        """Check one node; return whether it has bodies."""
        attributes = node.attribute
        # Verdicts are cached by operator, ports and serialized attributes, as nodes repeat.
        texts = tuple([attribute.SerializeToString() for attribute in attributes]) if attributes else ()
        blanks = tuple([index for index, name in enumerate(inputs) if not name]) if "" in inputs else ()
        form = (node.op_type, node.domain, self._calls and node.overload, len(inputs), outputs, blanks, texts)
        verdict = self._verdicts.get(form)
        if verdict is None:
            verdict = self._verdict(form, attributes)
            if sum(map(len, texts)) <= _REMEMBERED_UP_TO:
                self._verdicts[form] = verdict
        problem, quantized = verdict
        holds_bodies = False
        if quantized and not problem:
            self._check_tensors(attributes, f"node {label_of(node)}{self._where}")
            holds_bodies = any(attribute.type in (GRAPH, GRAPHS) for attribute in attributes)
            if holds_bodies and is_onnx(node):
                problem = body_problem(node, self._opsets.get("", 1))
        if problem:
            self._problem(node, problem)
        return holds_bodies

    def _verdict(self, form: tuple, attributes: Sequence[onnx.AttributeProto]) -> tuple[str, bool]:
        """Return the problem with nodes of this form (or empty), and whether they have tensors or bodies."""
        kinds = tuple([(attribute.name, attribute.type) for attribute in attributes])
        problem = self._operators.problem((*form[:2], form[2] or "", *form[3:6], kinds))
        for attribute in attributes:
            problem = problem or attribute_problem(attribute, bool(self._function))
        problem = problem or values_problem(form[0], attributes, form[4])
        return problem, any(kind in _HOLDING for _, kind in kinds)

    def attributes(self, attributes: Iterable[onnx.AttributeProto], label: str, depth: int) -> None:
        """Check the default attributes of a function."""
        for attribute in attributes:
            if problem := attribute_problem(attribute, False):
                self._problems.add(f"{label}: {problem}")
        self._check_tensors(attributes, label)
        for attribute in attributes:
            for body in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                self.graph(body, depth + 1)

    def _check_tensors(self, attributes: Iterable[onnx.AttributeProto], label: str) -> None:
        densify_attributes(attributes, self._loader, label)
        for attribute in attributes:
            for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
                self._loader.check_and_inline(tensor, f"attribute '{attribute.name}' of {label}")

    def _problem(self, node: onnx.NodeProto, problem: str) -> None:
        self._problems.add(f"node {label_of(node)}{self._where} {problem}")

    def _cycles(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Report a cycle of nodes, if there is one."""
        try:
            topological_order(nodes, self.visible)
        except DovetailError as error:
            self._problems.add(error.message)


def _repeated(names: list[str]) -> list[str]:
    """Return the non-empty names that occur more than once."""
    if len(set(names)) == len(names):
        return []
    return [name for name, times in Counter(names).items() if times > 1 and name]


def _defined(graph: onnx.GraphProto) -> set[str]:
    names = {entry.name for entry in (*graph.input, *graph.initializer)}
    names |= {tensor.values.name for tensor in graph.sparse_initializer}
    return names | {name for node in graph.node for name in node.output}


def _rank(value: onnx.ValueInfoProto) -> int | None:
    tensor = value.type.tensor_type
    return len(tensor.shape.dim) if tensor.HasField("shape") else None
