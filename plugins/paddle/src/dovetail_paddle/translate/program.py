"""Translate a legacy program, with its parameters, into a `pd_op` model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError

from dovetail_paddle.legacy.program import LegacyProgram
from dovetail_paddle.parameters import Declared, map_parameters
from dovetail_paddle.translate.block import BlockTranslation, Translation

if TYPE_CHECKING:
    import onnx_ir as ir


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
        variable.name: Declared(variable.dtype, cast("tuple[int, ...]", variable.shape))
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
    """Return the value of a parameter."""
    import onnx_ir as ir

    tensor.name = name
    shape = ir.Shape(tensor.shape.numpy())
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)


def _in_order(values: dict[int, ir.Value]) -> list[ir.Value]:
    return [value for _, value in sorted(values.items())]
