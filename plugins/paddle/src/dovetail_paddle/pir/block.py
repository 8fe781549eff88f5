"""Blocks of PIR programs: SSA values by number, and arrays that operators overwrite in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dovetail_paddle.element_types import element_type, onnx_type
from dovetail_paddle.pd_graph import BUILTIN, PD_OP, UNKNOWN, PdGraphs, TensorInfo, attribute
from dovetail_paddle.pir.attributes import MISSING, PirProblem, attribute_value, type_of
from dovetail_paddle.scope import BlockScope
from dovetail_paddle.signatures import operators, plain_name

if TYPE_CHECKING:
    import onnx_ir as ir


_DIALECTS = {"0": BUILTIN, "1": PD_OP}
_PARAMETERS = ("p", "0.parameter")
# In place in training only; inference does not change their operand.
_NOT_IN_PLACE = frozenset(("batch_norm_", "sync_batch_norm_", "share_data_", "assign_value_"))
_UNUSED = frozenset(("stop_gradient", "persistable", "op_callstack", "op_namescope", "op_role", "place", "force_cpu"))


class PirProgram:
    """State shared by the blocks of one program.

    Attributes:
        graphs: Builder of nodes and values.
        inputs: The inputs of the program.
        outputs: Its results by column.
    """

    def __init__(self) -> None:
        self.graphs = PdGraphs()
        self.inputs: list[ir.Value] = []
        self.outputs: dict[int, ir.Value] = {}
        self.blocks = 0


class PirBlock(BlockScope[int]):
    """Translation of one block.

    Args:
        program: State shared by all blocks.
        block: Its description.
        outer: The enclosing block; None for the main block.
    """

    def __init__(self, program: PirProgram, block: Any, outer: PirBlock | None):
        self.program = program
        super().__init__(program.graphs, outer)
        self.label = f"block {program.blocks}"
        program.blocks += 1
        if not isinstance(block, dict) or not isinstance(block.get("ops"), list):
            raise PirProblem(f"{self.label} cannot be read")
        self._block = block
        self.yielded: list[ir.Value] = []

    def get(self, number: int) -> ir.Value:
        """Return the current value of a number, which must exist."""
        found = self.find(number)
        if found is None:
            raise PirProblem(f"value {number} is read, and nothing gives it")
        return found

    def translate(self) -> None:
        """Translate all operators in order."""
        for index, op in enumerate(self._block["ops"]):
            kind = op.get("#") if isinstance(op, dict) else None
            if not isinstance(kind, str):
                raise PirProblem(f"operator {index} of {self.label} cannot be read")
            if kind in _PARAMETERS:
                continue
            try:
                self._op(op, kind)
            except PirProblem as problem:
                place = f"operator {index} of {self.label}, '{kind.partition('.')[2]}'"
                raise PirProblem(f"{place}: {problem}") from None
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                place = f"operator {index} of {self.label}, '{kind.partition('.')[2]}'"
                raise PirProblem(f"{place} cannot be read ({type(error).__name__}: {error})") from None

    def _op(self, op: dict[str, Any], kind: str) -> None:
        dialect, _, name = kind.partition(".")
        if name == "yield":
            self.yielded = [self.get(item["%"]) for item in op["I"]]
            return
        if dialect == "1" and name in ("while", "if"):
            (self._while if name == "while" else self._if)(op)
            return
        attributes = {entry["N"]: attribute_value(entry["AT"]) for entry in op.get("A", [])}
        struct = attributes.pop("struct_name", "")
        attributes = {key: value for key, value in attributes.items() if value is not MISSING and key not in _UNUSED}
        operands = [None if item["%"] == 0 else self.get(item["%"]) for item in op.get("I", [])]
        results = [(item["%"], type_of(item.get("TT"))) for item in op.get("O", [])]
        if name in ("data", "feed"):
            self._data(attributes, results)
            return
        domain = _DIALECTS.get(dialect, UNKNOWN)
        made = self._attributes(plain_name(name), attributes, results)
        wanted = [(f"{plain_name(name)}.{number}", info) for number, info in results]
        node = self.graphs.node(name, operands, made, wanted, domain=domain, struct=str(struct))
        self._nodes.append(node)
        for (number, _), value in zip(results, node.outputs, strict=True):
            self.set(number, value)
        for number in written(op, kind):
            self.set(number, node.outputs[0])
        if name == "fetch":
            self.program.outputs[attributes["col"]] = node.outputs[0]

    def _attributes(
        self, name: str, values: dict[str, Any], results: Sequence[tuple[int, TensorInfo]]
    ) -> dict[str, ir.Attr]:
        """Convert the attributes of a node; elements of constants are stored as tensors, which are exact."""
        import numpy as np

        signature = operators().get(name)
        found = {}
        for key, value in values.items():
            argument = None if signature is None else signature.argument.get(key)
            if (name, key) in (("full", "value"), ("assign_value", "values")):
                dtype = onnx_type(values.get("dtype", "")) or element_type(results[0][1].dtype)
                found[key] = attribute(key, np.array(value).astype(dtype.numpy()))
            elif argument is None:
                if not isinstance(value, list) or value:
                    found[key] = attribute(key, value)
            else:
                found[key] = attribute(key, value, argument.element, argument.is_array)
        return found

    def _data(self, attributes: dict[str, Any], results: Sequence[tuple[int, TensorInfo]]) -> None:
        import onnx_ir as ir

        (number, info), name = results[0], attributes["name"]
        value = self.graphs.value(name, info)
        if value.name != name:
            raise PirProblem(f"there are two inputs or parameters '{name}'")
        if info.shape is not None:
            value.shape = ir.Shape([f"{name}_{at}" if extent < 0 else extent for at, extent in enumerate(info.shape)])
        self.program.inputs.append(value)
        self.set(number, value)

    def _inner(self, op: dict[str, Any]) -> list[PirBlock]:
        return [PirBlock(self.program, block, self) for region in op["regions"] for block in region["blocks"]]

    def _overwritten(self, op: dict[str, Any]) -> list[int]:
        """Return the values of this and enclosing blocks that the bodies of an operator overwrite."""
        found = dict.fromkeys(_written_inside(op))
        return [number for number in found if self.find(number) is not None]

    def _while(self, op: dict[str, Any]) -> None:
        (body,) = self._inner(op)
        given = [self.get(item["%"]) for item in op["I"]]
        arguments = body._block.get("args", [])
        extra = self._overwritten(op)
        first = [*given, *map(self.get, extra)]
        infos = [type_of(argument.get("TT")) for argument in arguments]
        inputs = []
        for argument, info in zip(arguments, infos, strict=True):
            value = self.graphs.value(f"carried.{-argument['#']}", info)
            body.set(argument["#"], value)
            inputs.append(value)
        for number in extra:
            value = self.graphs.value(f"carried.{number}", _info(self.get(number)))
            body.set(number, value)
            inputs.append(value)
        body.translate()
        outputs = [*body.yielded, *map(body.get, extra)]
        if len(outputs) != len(inputs) + 1 or len(first) != len(outputs):
            raise PirProblem(f"its body gives {len(outputs)} values, and {len(inputs) + 1} are carried")
        graph = body.graph(body.label.replace(" ", ""), inputs, outputs)
        self._control_flow("while", op, first, {"body": graph}, extra)

    def _if(self, op: dict[str, Any]) -> None:
        branches = self._inner(op)
        if len(branches) != 2:
            raise PirProblem(f"it has {len(branches)} branches, and two are known")
        extra = self._overwritten(op)
        graphs = {}
        for name, branch in zip(("then_branch", "else_branch"), branches, strict=True):
            branch.translate()
            outputs = [*branch.yielded, *map(branch.get, extra)]
            if len(outputs) != len(op["O"]) + len(extra):
                raise PirProblem(f"a branch gives {len(outputs)} values, and it has {len(op['O'])} results")
            graphs[name] = branch.graph(branch.label.replace(" ", ""), [], outputs)
        self._control_flow("if", op, [self.get(item["%"]) for item in op["I"]], graphs, extra)

    def _control_flow(
        self,
        name: str,
        op: dict[str, Any],
        operands: Sequence[ir.Value],
        graphs: dict[str, ir.Graph],
        extra: Sequence[int],
    ) -> None:
        import onnx_ir as ir

        results = [(item["%"], type_of(item.get("TT"))) for item in op["O"]]
        results += [(number, _info(self.get(number))) for number in extra]
        attributes = {key: ir.AttrGraph(key, graph) for key, graph in graphs.items()}
        wanted = [(f"{name}.{number}", info) for number, info in results]
        node = self.graphs.node(name, operands, attributes, wanted)
        self._nodes.append(node)
        for (number, _), value in zip(results, node.outputs, strict=True):
            self.set(number, value)


def written(op: dict[str, Any], kind: str) -> list[int]:
    """Return the operand that an operator overwrites according to its name, as a list."""
    name = kind.partition(".")[2]
    if not name.endswith("_") or name in _NOT_IN_PLACE or not op.get("O"):
        return []
    place = 1 if name == "assign_out_" else 0  # the others overwrite an operand of the computation
    operands = op.get("I", [])
    return [operands[place]["%"]] if len(operands) > place and operands[place]["%"] else []


def _written_inside(op: dict[str, Any]) -> Iterator[int]:
    """Yield the outer values that operators in the bodies of an operator overwrite."""
    for region in op.get("regions", []):
        for block in region["blocks"]:
            if not isinstance(block, dict) or not all(isinstance(inner, dict) for inner in block.get("ops", ())):
                continue  # translation reports the error
            own = {argument["#"] for argument in block.get("args", [])}
            for inner in block["ops"]:
                results = inner.get("O", [])
                own.update(result["%"] for result in (results if isinstance(results, list) else [results]))
            for inner in block["ops"]:
                found = (*written(inner, inner.get("#", "")), *_written_inside(inner))
                yield from (number for number in found if number not in own)


def _info(value: ir.Value) -> TensorInfo:
    """Return the type of a value without extents, because a body may change them."""
    import onnx_ir as ir

    from dovetail_paddle.element_types import NAMES

    is_list = isinstance(value.type, ir.SequenceType)
    return TensorInfo(NAMES.get(value.dtype.name, "") if value.dtype is not None else "", None, is_list)
