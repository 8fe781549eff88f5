"""Reader of `.pdmodel` files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.plugin.loading import check_regular
from dovetail.text import printable

from dovetail_paddle.element_types import of_number, source_line
from dovetail_paddle.legacy.program import (
    Attribute,
    BlockRef,
    BlockVariable,
    LegacyBlock,
    LegacyOp,
    LegacyProgram,
    VariableRef,
)

_PACKAGE = "dovetail.paddle"

# message -> (field, number, type); `*` marks a repeated field, and a capital starts the name of a message.
_MESSAGES = {
    "Complex": "r:1:double i:2:double",
    "Scalar": "type:1:int32 b:2:bool i:3:int64 r:4:double c:5:Complex",
    "Port": "parameter:1:bytes arguments:2:bytes*",
    "Attribute": "name:1:bytes type:2:int32 i:3:int32 f:4:float s:5:bytes ints:6:int32* floats:7:float* "
    "strings:8:bytes* b:10:bool bools:11:bool* block_idx:12:int32 l:13:int64 blocks_idx:14:int32* longs:15:int64* "
    "float64s:16:double* var_name:17:bytes vars_name:18:bytes* float64:19:double scalar:20:Scalar scalars:21:Scalar*",
    "Operator": "inputs:1:Port* outputs:2:Port* type:3:bytes attrs:4:Attribute*",
    "Tensor": "data_type:1:int32 dims:2:int64*",
    "DenseTensor": "tensor:1:Tensor lod_level:2:int32",
    "Type": "type:1:int32 selected_rows:2:Tensor dense_tensor:3:DenseTensor tensor_array:4:DenseTensor",
    "Variable": "name:1:bytes type:2:Type persistable:3:bool is_parameter:5:bool",
    "Block": "idx:1:int32 parent_idx:2:int32 vars:3:Variable* ops:4:Operator*",
    "Version": "version:1:int64",
    "OperatorVersion": "version:1:int32",
    "NamedVersion": "op_name:1:bytes op_version:2:OperatorVersion",
    "VersionMap": "pair:1:NamedVersion*",
    "Program": "blocks:1:Block* version:4:Version op_version_map:5:VersionMap",
}

ATTRIBUTE_FIELDS = {
    0: "i", 1: "f", 2: "s", 3: "ints", 4: "floats", 5: "strings", 6: "b", 7: "bools", 8: "block_idx", 9: "l",
    10: "blocks_idx", 11: "longs", 12: "float64s", 13: "var_name", 14: "vars_name", 15: "float64", 16: "scalar",
    17: "scalars",
}  # fmt: skip
"""Field of an attribute's value, by attribute type."""


@cache
def _classes() -> dict[str, type[Any]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "double": field_type.TYPE_DOUBLE, "float": field_type.TYPE_FLOAT, "int64": field_type.TYPE_INT64,
        "int32": field_type.TYPE_INT32, "bool": field_type.TYPE_BOOL, "bytes": field_type.TYPE_BYTES,
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="dovetail_paddle.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            field, number, kind = text.split(":")
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            added = message.field.add(name=field, number=int(number))
            added.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in scalars:
                added.type = scalars[kind]
            else:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()  # a separate pool, because Paddle may be loaded in the same process
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Program", "Tensor")
    }


def program_class() -> type[Any]:
    """Return the message class of a program."""
    return _classes()["Program"]


def tensor_class() -> type[Any]:
    """Return the message class of a tensor's type and extents, which precedes its data in a parameter file."""
    return _classes()["Tensor"]


NEWEST = 3_999_999
"""Newest supported version of Paddle: major * 1,000,000 + minor * 1,000 + patch."""

_KINDS = {7: "tensor", 8: "rows", 9: "feed", 10: "fetch", 11: "scopes", 13: "array", 17: "raw"}
_BLOCK, _BLOCKS, _VARIABLE, _VARIABLES, _SCALAR, _SCALARS = 8, 10, 13, 14, 16, 17
# Attributes for training, profiling and kernel selection, which inference ignores.
_UNUSED = frozenset({
    "op_role", "op_role_var", "op_namescope", "op_callstack", "op_device", "with_quant_attr", "use_mkldnn",
    "use_cudnn", "mkldnn_data_type", "use_quantizer", "workspace_size_MB", "exhaustive_search", "force_fp32_output",
})  # fmt: skip
_DEEPEST = 64
_AGAIN = "export or copy the program again"


def read_program(path: Path) -> LegacyProgram:
    """Read a program.

    Raises:
        DovetailError: The file cannot be read, is not a program, is cut short, or is of a newer version; or its blocks
            or attributes are malformed.
    """
    check_regular(path)
    try:
        content = seen(path).read_bytes()
    except OSError as error:
        raise DovetailError(f"{path} cannot be read: {error.strerror or error}", "check the path") from error
    return parse_program(content, str(path))


def parse_program(content: bytes, name: str) -> LegacyProgram:
    """Parse the bytes of a `.pdmodel` file; see `read_program`.

    Args:
        content: The bytes.
        name: The name of the file in messages.
    """
    from google.protobuf.message import DecodeError

    if not content:
        raise DovetailError(f"{name} is empty", _AGAIN)
    try:
        proto = program_class().FromString(content)
    except DecodeError as error:
        raise DovetailError(f"{name} is not a Paddle program, or it is cut short ({error})", _AGAIN) from None
    if not proto.blocks:
        raise DovetailError(f"{name} is not a Paddle program: it holds no block", "name a .pdmodel file")
    version = proto.version.version
    if version > NEWEST:
        major, minor, patch = version // 1_000_000, version // 1000 % 1000, version % 1000
        problem = f"{name} was written by Paddle {major}.{minor}.{patch}, which is newer than what is read here"
        raise DovetailError(problem, "export it with Paddle 3, or update dovetail-paddle")
    try:
        blocks = [_block(block, index, len(proto.blocks)) for index, block in enumerate(proto.blocks)]
        versions = {_text(pair.op_name): pair.op_version.version for pair in proto.op_version_map.pair}
        program = LegacyProgram(blocks, version, versions)
        _check_nesting(program)
    except _Problem as error:
        raise DovetailError(f"{name}: {printable(str(error))}", _AGAIN) from None
    return program


class _Problem(ValueError):
    """Raised for a malformed program."""


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _Problem(f"a name is not UTF-8 text ({value[:40]!r})") from None


def _block(proto: Any, index: int, count: int) -> LegacyBlock:
    parent = proto.parent_idx if index else -1
    if not -1 <= parent < count or (index and parent < 0):
        raise _Problem(f"block {index} lies in block {parent}, which does not exist")
    variables = {}
    for declared in proto.vars:
        variable = _variable(declared)
        variables[variable.name] = variable
    ops = [_op(op, index, position, count) for position, op in enumerate(proto.ops)]
    return LegacyBlock(index, parent, variables, ops)


def _variable(proto: Any) -> BlockVariable:
    kind = _KINDS.get(proto.type.type, f"kind {proto.type.type}")
    held = {"tensor": "dense_tensor", "array": "tensor_array"}.get(kind)
    if held is None:
        return BlockVariable(_text(proto.name), kind)
    tensor = getattr(proto.type, held).tensor
    dtype = of_number(tensor.data_type)
    name = _text(proto.name)
    if dtype is None:
        raise _Problem(f"variable '{name}' has an element type that Paddle does not know ({tensor.data_type})")
    return BlockVariable(name, kind, dtype, tuple(tensor.dims), proto.persistable)


def _op(proto: Any, block: int, index: int, blocks: int) -> LegacyOp:
    kind = _text(proto.type)
    attributes: dict[str, Attribute] = {}
    source = ""
    for attribute in proto.attrs:
        name = _text(attribute.name)
        if name == "op_callstack":
            source = source_line([entry.decode(errors="replace") for entry in attribute.strings])
        if name not in _UNUSED:
            attributes[name] = _attribute(
                attribute, f"attribute '{name}' of {kind}, operator {index} of block {block},", blocks
            )
    inputs = {_text(port.parameter): [_text(name) for name in port.arguments] for port in proto.inputs}
    outputs = {_text(port.parameter): [_text(name) for name in port.arguments] for port in proto.outputs}
    return LegacyOp(kind, inputs, outputs, attributes, block, index, source)


def _attribute(proto: Any, what: str, blocks: int) -> Attribute:
    kind = proto.type
    field = ATTRIBUTE_FIELDS.get(kind)
    if field is None:
        raise _Problem(f"{what} is of a type that Paddle does not know ({kind})")
    value = getattr(proto, field)
    if kind in (_BLOCK, _BLOCKS):
        for index in [value] if kind == _BLOCK else value:
            if not 0 <= index < blocks:
                raise _Problem(f"{what} names block {index}, and the program has {blocks}")
        return BlockRef(value) if kind == _BLOCK else [BlockRef(index) for index in value]
    if kind == _VARIABLE:
        return VariableRef(_text(value))
    if kind == _VARIABLES:
        return [VariableRef(_text(name)) for name in value]
    if kind == _SCALAR:
        return _scalar(value, what)
    if kind == _SCALARS:
        return [_scalar(item, what) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (bool, int, float)):
        return value
    return [item.decode(errors="replace") if isinstance(item, bytes) else item for item in value]


def _scalar(proto: Any, what: str) -> Attribute:
    field = {1: "b", 2: "i", 3: "r", 4: "c"}.get(proto.type)
    if field is None:
        raise _Problem(f"{what} holds a scalar of a type that Paddle does not know ({proto.type})")
    value = getattr(proto, field)
    return complex(value.r, value.i) if field == "c" else value


def _check_nesting(program: LegacyProgram) -> None:
    """Check that blocks are not nested in themselves, neither as parents nor through operators."""
    runs: dict[int, list[int]] = {}
    for op in program.ops():
        for value in op.attributes.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, BlockRef):
                    runs.setdefault(op.block, []).append(item.index)
    for links, what in (
        ({block.index: [block.parent] for block in program.blocks if block.parent >= 0}, "lies in itself"),
        (runs, "runs itself"),
    ):
        done: set[int] = set()
        for start in list(links):
            stack, path = [(start, iter(links.get(start, ())))], {start}
            while stack:
                index, rest = stack[-1]
                following = next(rest, None)
                if following is None:
                    stack.pop()
                    path.discard(index)
                    done.add(index)
                elif following in path:
                    raise _Problem(f"block {following} {what}")
                elif following not in done:
                    if len(path) > _DEEPEST:
                        raise _Problem(f"blocks are nested deeper than {_DEEPEST} levels")
                    path.add(following)
                    stack.append((following, iter(links.get(following, ()))))
