"""Translation of `while` and `conditional_block`, whose blocks overwrite outer variables, to nodes with bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.legacy.program import BlockRef, LegacyOp, LegacyProgram
from dovetail_paddle.pd_graph import TensorInfo, attribute

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.translate.program import BlockTranslation


class Writes:
    """Outer variables that each block of a program writes, directly or in nested blocks.

    Args:
        program: The program.
    """

    def __init__(self, program: LegacyProgram):
        self._program = program
        self._known: dict[int, list[str]] = {}

    def outer(self, index: int) -> list[str]:
        """Return the variables of enclosing blocks that block `index` writes, in order."""
        if index not in self._known:
            block = self._program.blocks[index]
            found: dict[str, None] = {}
            for op in block.ops:
                inner = [name for sub in blocks_of(op) for name in self.outer(sub)]
                for name in (*(name for names in op.outputs.values() for name in names), *inner):
                    variable = self._program.variable(index, name)
                    if name not in block.variables and variable is not None and variable.kind in ("tensor", "array"):
                        found[name] = None
            self._known[index] = list(found)
        return self._known[index]


def blocks_of(op: LegacyOp) -> list[int]:
    """Return the blocks that an operator runs."""
    return [value.index for value in op.attributes.values() if isinstance(value, BlockRef)]


def while_loop(op: LegacyOp, scope: BlockTranslation) -> None:
    """Translate `while`: the outer variables that its block writes are loop-carried."""
    index = _block(op, scope)
    condition = op.input("Condition")
    if condition is None:
        raise scope.refuse(op, "has no condition")
    carried = [name for name in scope.writes.outer(index) if name != condition]
    first = [scope.get(condition, op), *(_defined(name, scope) for name in carried)]
    inner = scope.inner(index)
    inputs = []
    for name, value in zip(carried, first[1:], strict=True):
        held = scope.graphs.value(f"{name}.carried", _info_of(value, scope.info(name)))
        inner.set(name, held)
        inputs.append(held)
    inner.translate()
    outputs = [inner.get(name, op) for name in (condition, *carried)]
    body = inner.graph(f"block{index}", inputs, outputs)
    results = [(name, _info_of(value, scope.info(name))) for name, value in zip(carried, first[1:], strict=True)]
    node = scope.graphs.node("while", first, {"body": _graph("body", body)}, results, source=op.source)
    scope.append(node)
    for name, value in zip(carried, node.outputs, strict=True):
        scope.set(name, value)
    scope.set(condition, undefined(condition, scope))  # the loop ends when it is false


def conditional_block(op: LegacyOp, scope: BlockTranslation) -> None:
    """Translate `conditional_block`: if it does not run, its variables keep their values."""
    index = _block(op, scope)
    condition = op.input("Cond")
    if condition is None:
        raise scope.refuse(op, "has no condition")
    condition_value = scope.get(condition, op)
    written = scope.writes.outer(index)
    before = {name: scope.find(name) for name in written}
    inner = scope.inner(index)
    inner.translate()
    branch = inner.graph(f"block{index}", [], [inner.get(name, op) for name in written])
    other = scope.inner(index)
    kept = [found if (found := before[name]) is not None else undefined(name, other) for name in written]
    otherwise = other.graph(f"block{index}.else", [], kept)
    results = [(name, _info_of(before[name], scope.info(name))) for name in written]
    attributes = {"then_branch": _graph("then_branch", branch), "else_branch": _graph("else_branch", otherwise)}
    node = scope.append(scope.graphs.node("if", [condition_value], attributes, results, source=op.source))
    for name, value in zip(written, node.outputs, strict=True):
        scope.set(name, value)


def undefined(name: str, scope: BlockTranslation) -> ir.Value:
    """Return the value of an unwritten variable: zeros, or an empty array."""
    import numpy as np

    info = scope.info(name)
    if info.is_list:
        attributes = {"dtype": attribute("dtype", info.dtype)}
        return scope.append(scope.graphs.node("create_array", [], attributes, [(name, info)])).outputs[0]
    shape = [max(extent, 1) for extent in info.shape or ()]
    attributes = {
        "shape": attribute("shape", shape, "int", True),
        "value": attribute("value", np.array(0, scope.numpy_type(name))),
        "dtype": attribute("dtype", info.dtype),
    }
    return scope.append(scope.graphs.node("full", [], attributes, [(f"{name}.undefined", info)])).outputs[0]


def _defined(name: str, scope: BlockTranslation) -> ir.Value:
    found = scope.find(name)
    return found if found is not None else undefined(name, scope)


def _info_of(value: ir.Value | None, declared: TensorInfo) -> TensorInfo:
    """Return the declared type of a variable, without extents that differ from its first value's."""
    if value is None or value.shape is None or declared.shape is None or len(value.shape) != len(declared.shape):
        return declared if value is None or declared.is_list or value.shape is not None else TensorInfo(declared.dtype)
    pairs = zip(value.shape, declared.shape, strict=True)
    return TensorInfo(declared.dtype, tuple(extent if extent == have else -1 for have, extent in pairs))


def _graph(name: str, graph: ir.Graph) -> ir.Attr:
    import onnx_ir as ir

    return ir.AttrGraph(name, graph)


def _block(op: LegacyOp, scope: BlockTranslation) -> int:
    found = op.attributes.get("sub_block")
    if not isinstance(found, BlockRef):
        raise scope.refuse(op, "names no block")
    return found.index
