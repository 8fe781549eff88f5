"""Small programs of Paddle, written by hand: legacy ones out of operators, and PIR ones out of their JSON."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from dovetail_paddle.element_types import BY_NUMBER
from dovetail_paddle.legacy.reading import ATTRIBUTE_FIELDS, program_class, tensor_class

NUMBERS = {name: number for number, name in BY_NUMBER.items()}
TENSOR, FEED, FETCH, SCOPES, ARRAY = 7, 9, 10, 11, 13


class Legacy:
    """A legacy program: `x` is fed, what `fetch` names is its result."""

    def __init__(self, version: int = 2006002):
        self.proto = program_class()()
        self.proto.version.version = version
        self.arrays: dict[str, np.ndarray] = {}
        self.block()

    def block(self, parent: int = -1) -> int:
        added = self.proto.blocks.add()
        added.idx, added.parent_idx = len(self.proto.blocks) - 1, parent
        return added.idx

    def var(self, name: str, shape=(), dtype: str = "float32", *, kind: int = TENSOR, block: int = 0, keep=False):
        variable = self.proto.blocks[block].vars.add(name=name.encode(), persistable=keep)
        variable.type.type = kind
        if kind in (TENSOR, ARRAY):
            held = variable.type.dense_tensor if kind == TENSOR else variable.type.tensor_array
            held.tensor.data_type = NUMBERS[dtype]
            held.tensor.dims.extend(shape)
        return self

    def parameter(self, name: str, array: np.ndarray):
        self.arrays[name] = array
        return self.var(name, array.shape, array.dtype.name, keep=True)

    def feed(self, name: str, shape, dtype: str = "float32"):
        self.var(name, shape, dtype)
        column = sum(op.type == b"feed" for op in self.proto.blocks[0].ops)
        return self.op("feed", {"X": ["feed"]}, {"Out": [name]}, col=column)

    def fetch(self, name: str):
        column = sum(op.type == b"fetch" for op in self.proto.blocks[0].ops)
        return self.op("fetch", {"X": [name]}, {"Out": ["fetch"]}, col=column)

    def op(self, kind: str, inputs: dict, outputs: dict, *, in_block: int = 0, stack=(), **attributes: Any):
        op = self.proto.blocks[in_block].ops.add(type=kind.encode())
        for ports, given in ((op.inputs, inputs), (op.outputs, outputs)):
            for name, values in given.items():
                ports.add(parameter=name.encode(), arguments=[value.encode() for value in values])
        for name, value in attributes.items():
            _set(op.attrs.add(name=name.encode()), value)
        if stack:
            op.attrs.add(name=b"op_callstack", type=5, strings=[entry.encode() for entry in stack])
        return self

    def save(self, folder: Path, name: str = "net") -> Path:
        path = folder / f"{name}.pdmodel"
        path.write_bytes(self.proto.SerializeToString())
        if self.arrays:
            path.with_suffix(".pdiparams").write_bytes(parameters(self.arrays))
        return path


class Block(int):
    """The value of an attribute that names a block."""


def _set(attribute, value) -> None:
    items = value if isinstance(value, list) else [value]
    kind = type(items[0]) if items else int
    number = {
        (int, False): 0, (float, False): 1, (str, False): 2, (int, True): 3, (float, True): 4, (str, True): 5,
        (bool, False): 6, (Block, False): 8,
    }[kind, isinstance(value, list)]  # fmt: skip
    attribute.type = number
    encoded = [item.encode() if isinstance(item, str) else item for item in items]
    if isinstance(value, list):
        getattr(attribute, ATTRIBUTE_FIELDS[number]).extend(encoded)
    else:
        setattr(attribute, ATTRIBUTE_FIELDS[number], encoded[0])


def parameters(arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of a parameter file."""
    parts = []
    for _, array in sorted(arrays.items()):
        header = tensor_class()(data_type=NUMBERS[array.dtype.name], dims=array.shape).SerializeToString()
        parts.append(struct.pack("<IQIi", 0, 0, 0, len(header)) + header + array.tobytes())
    return b"".join(parts)


def tensor_type(dtype: str, shape) -> dict:
    return {"#": "0.t_dtensor", "D": [{"#": f"0.t_{dtype}"}, list(shape), "NCHW", [], 0]}


def pir_op(kind: str, operands, results, attributes=(), **more) -> dict:
    """An operator: operands by number, results as (number, dtype, shape), attributes as (name, type, value)."""
    return {
        "#": kind,
        "A": [{"N": name, "AT": {"#": tag, "D": value}} for name, tag, value in attributes],
        "I": [{"%": number} for number in operands],
        "O": [{"%": number, "TT": tensor_type(dtype, shape)} for number, dtype, shape in results],
        **more,
    }


def pir_input(number: int, name: str, dtype: str, shape) -> dict:
    return pir_op("1.data", (), [(number, dtype, shape)], [("name", "0.a_str", name)])


def pir_result(operand: int, number: int, dtype: str, shape, column: int = 0) -> dict:
    attributes = [("name", "0.a_str", f"fetch_name_{column}"), ("col", "0.a_i32", column)]
    return pir_op("1.fetch", [operand], [(number, dtype, shape)], attributes)


def pir_parameter(number: int, name: str, dtype: str, shape) -> dict:
    return {"#": "p", "A": [0, 1, 1, name], "O": {"%": number, "TT": tensor_type(dtype, shape)}, "OA": [1, 0, 1]}


def save_pir(folder: Path, ops: list, arrays: dict | None = None, version: int = 4, magic: str = "pir") -> Path:
    path = folder / "net.json"
    block = {"#": "block_0", "args": [], "ops": ops}
    head = {"magic": magic, "trainable": True, "version": version}
    path.write_text(json.dumps({"base_code": head, "program": {"regions": [{"#": "region_0", "blocks": [block]}]}}))
    if arrays:
        path.with_suffix(".pdiparams").write_bytes(parameters(arrays))
    return path
