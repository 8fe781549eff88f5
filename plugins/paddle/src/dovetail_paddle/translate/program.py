"""Translation of legacy programs to `pd_op` models, block by block, tracking the current values of variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.text import printable

from dovetail_paddle.element_types import element_type
from dovetail_paddle.legacy.program import LegacyBlock, LegacyOp, LegacyProgram
from dovetail_paddle.parameters import DeclaredParameter, map_parameters
from dovetail_paddle.pd_graph import UNKNOWN, PdGraphs, TensorInfo, attribute
from dovetail_paddle.scope import BlockScope
from dovetail_paddle.translate.control_flow import Writes, conditional_block, while_loop
from dovetail_paddle.translate.special import SPECIAL
from dovetail_paddle.translate.transcriber import OpTranscriber, compat

if TYPE_CHECKING:
    import onnx_ir as ir


_CONTROL_FLOW: dict[str, Callable[[LegacyOp, BlockTranslation], None]] = {
    "while": while_loop,
    "conditional_block": conditional_block,
    "conditional_block_infer": conditional_block,
}


class Translation:
    """State shared by the blocks of one program.

    Attributes:
        name: The name of the program in messages.
        program: The program.
        graphs: Builder of nodes and values.
        writes: Outer variables written by blocks.
        inputs: The inputs of the main graph, by column.
        outputs: The results of the program, by column.
    """

    def __init__(self, program: LegacyProgram, name: str):
        self.name = name
        self.program = program
        self.graphs = PdGraphs()
        self.writes = Writes(program)
        self.inputs: dict[int, ir.Value] = {}
        self.outputs: dict[int, ir.Value] = {}
        self._transcribers: dict[str, OpTranscriber | None] = {}
        given = {name for op in program.ops() if op.type == "feed" for name in op.outputs.get("Out", ())}
        given |= {name for block in program.blocks for name, held in block.variables.items() if held.persistable}
        fetched = (name for op in program.ops() if op.type == "fetch" for name in op.inputs.get("X", ()))
        self.graphs.reserve(name for name in fetched if name not in given)

    def transcriber(self, op_type: str) -> OpTranscriber | None:
        """Return the transcriber of a legacy operator; None if it is unknown."""
        if op_type not in self._transcribers:
            entry = compat().get(op_type)
            made = None if entry is None else SPECIAL.get(op_type, OpTranscriber)(entry)
            self._transcribers[op_type] = made
        return self._transcribers[op_type]

    def refuse(self, op: LegacyOp, problem: str) -> DovetailError:
        """Create the error for a malformed operator."""
        source = f", made at {op.source}," if op.source else ""
        text = f"{self.name}: {op.place}, '{op.type}'{source} {problem}"
        return DovetailError(printable(text), "export the program again")


class BlockTranslation(BlockScope[str]):
    """Translation of one block, the `Scope` of its operators.

    Args:
        shared: State shared by all blocks.
        block: The block.
        outer: The translation of the enclosing block; None for the main block.
    """

    def __init__(self, shared: Translation, block: LegacyBlock, outer: BlockTranslation | None = None):
        self.shared = shared
        super().__init__(shared.graphs, outer)
        self.writes = shared.writes
        self._block = block

    def get(self, name: str, op: LegacyOp) -> ir.Value:
        """Return the current value of a variable.

        Raises:
            DovetailError: The variable has not been written.
        """
        found = self.find(name)
        if found is None:
            raise self.refuse(op, f"reads '{name}', which nothing has written")
        return found

    def info(self, name: str) -> TensorInfo:
        """Return the declared type of a variable."""
        found = self.shared.program.variable(self._block.index, name)
        return TensorInfo() if found is None else TensorInfo(found.dtype, found.shape, found.kind == "array")

    def numpy_type(self, name: str):
        """Return the NumPy type of a variable."""
        return element_type(self.info(name).dtype or "float32").numpy()

    def append(self, node: ir.Node) -> ir.Node:
        """Append a node to the graph of the block."""
        self._nodes.append(node)
        return node

    def refuse(self, op: LegacyOp, problem: str) -> DovetailError:
        """Create the error for a malformed operator."""
        return self.shared.refuse(op, problem)

    def inner(self, index: int) -> BlockTranslation:
        """Create the translation of a block that an operator of this one runs."""
        return BlockTranslation(self.shared, self.shared.program.blocks[index], self)

    def translate(self) -> None:
        """Translate all operators in order."""
        for op in self._block.ops:
            control_flow = _CONTROL_FLOW.get(op.type)
            if control_flow is not None:
                control_flow(op, self)
            elif op.type == "feed":
                self._feed(op)
            elif op.type == "fetch":
                self._fetch(op)
            elif (transcriber := self.shared.transcriber(op.type)) is not None:
                transcriber.transcribe(op, self)
            else:
                self._unknown(op)

    def _feed(self, op: LegacyOp) -> None:
        name = next(iter(op.outputs.get("Out", ())), None)
        column = op.attributes.get("col", 0)
        if name is None or not isinstance(column, int) or column in self.shared.inputs or self._outer is not None:
            raise self.refuse(op, "is no input of the program")
        value = self.graphs.value(name, self.info(name))
        if value.shape is not None:
            import onnx_ir as ir

            value.shape = ir.Shape(
                [
                    f"{name}_{axis}" if extent is None or not isinstance(extent, int) else extent
                    for axis, extent in enumerate(value.shape)
                ]
            )
        self.shared.inputs[column] = value
        self.set(name, value)

    def _fetch(self, op: LegacyOp) -> None:
        name = op.input("X")
        column = op.attributes.get("col", 0)
        if name is None or not isinstance(column, int) or column in self.shared.outputs or self._outer is not None:
            raise self.refuse(op, "is no result of the program")
        attributes = {"name": attribute("name", name), "col": attribute("col", column)}
        results = [(f"fetch.{name}", self.info(name))]
        node = self.graphs.node("fetch", [self.get(name, op)], attributes, results, source=op.source)
        self.shared.outputs[column] = self.append(node).outputs[0]

    def _unknown(self, op: LegacyOp) -> None:
        """Keep an unknown operator, with inputs and outputs sorted by parameter name."""
        operands = [self.get(name, op) for _, names in sorted(op.inputs.items()) for name in names]
        outputs = [name for _, names in sorted(op.outputs.items()) for name in names]
        attributes = {}
        for name, value in sorted(op.attributes.items()):
            if isinstance(value, (bool, int, float, str)) or (isinstance(value, list) and value):
                attributes[name] = attribute(name, value)
        results = [(name, self.info(name)) for name in outputs]
        node = self.graphs.node(op.type, operands, attributes, results, domain=UNKNOWN, source=op.source)
        node.metadata_props["paddle.place"] = op.place
        self.append(node)
        for name, output in zip(outputs, node.outputs, strict=True):
            self.set(name, output)


def translate(program: LegacyProgram, name: str, parameters: Path) -> ir.Model:
    """Return the `pd_op` model of a program.

    Args:
        program: The program.
        name: Its name in messages.
        parameters: The file of its parameters, which may be missing if it has none.

    Raises:
        DovetailError: The program or its parameters are malformed; names the operator or the parameter.
    """
    import onnx_ir as ir

    shared = Translation(program, name)
    main = BlockTranslation(shared, program.blocks[0])
    declared = {
        variable.name: DeclaredParameter(variable.dtype, cast("tuple[int, ...]", variable.shape))
        for block in program.blocks
        for variable in block.variables.values()
        if variable.persistable and variable.kind == "tensor"
    }
    initializers = []
    for tensor_name, tensor in map_parameters(parameters, declared).items():
        value = initializer(shared.graphs.value_name(tensor_name), tensor)
        main.set(tensor_name, value)
        initializers.append(value)
    main.translate()
    if not shared.outputs:
        raise DovetailError(f"{name}: the program has no result", "export it with the results that are wanted")
    graph = main.graph("main", *(_in_order(values) for values in (shared.inputs, shared.outputs)))
    for value in initializers:
        graph.register_initializer(value)
    version = program.version
    return ir.Model(
        graph,
        ir_version=10,
        producer_name="paddle",
        producer_version=f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}",
    )


def initializer(name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """Create the value of a parameter."""
    import onnx_ir as ir

    tensor.name = name
    shape = ir.Shape(tensor.shape.numpy())
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)


def _in_order(values: dict[int, ir.Value]) -> list[ir.Value]:
    return [value for _, value in sorted(values.items())]
