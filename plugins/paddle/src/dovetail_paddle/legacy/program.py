"""Legacy programs as dataclasses: blocks of variables, which operators name and overwrite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BlockRef:
    """An attribute that refers to a block of the program."""

    index: int

    def __str__(self) -> str:
        return f"block {self.index}"


@dataclass(frozen=True)
class VariableRef:
    """An attribute that refers to a variable, and becomes an input."""

    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


Attribute = bool | int | float | str | complex | list | BlockRef | VariableRef


@dataclass(frozen=True)
class BlockVariable:
    """A variable of a block.

    Attributes:
        name: Its name.
        kind: `tensor`, `array`, or another kind, such as `feed` and `scopes`.
        dtype: The name of its element type; empty if it has none.
        shape: Its extents, -1 for an open one; None if it has none.
        persistable: Whether its value is in the parameter file.
    """

    name: str
    kind: str = "tensor"
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    persistable: bool = False

    def __str__(self) -> str:
        extents = "" if self.shape is None else f"[{','.join('?' if n < 0 else str(n) for n in self.shape)}]"
        kind = "" if self.kind == "tensor" else f"{self.kind} "
        return f"{'param ' * self.persistable}{kind}%{self.name}: {self.dtype or '?'}{extents}"


@dataclass(slots=True)
class LegacyOp:
    """An operator of a block.

    Attributes:
        type: Its type, as in `conv2d`.
        inputs: Names of input variables by parameter.
        outputs: Names of output variables by parameter.
        attributes: Its attributes by name.
        block: The index of its block.
        index: Its position in the block.
        source: File and line of its source code; empty if not recorded.
    """

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attributes: dict[str, Attribute]
    block: int = 0
    index: int = 0
    source: str = ""

    @property
    def place(self) -> str:
        """Position in the program, for messages."""
        return f"operator {self.index} of block {self.block}"

    def input(self, parameter: str) -> str | None:
        """Return the single variable of an input; None if the input is missing."""
        return next(iter(self.inputs.get(parameter, ())), None)

    def __str__(self) -> str:
        outputs = ", ".join(f"{key}: {_names(names)}" for key, names in sorted(self.outputs.items()) if names)
        inputs = ", ".join(f"{key}: {_names(names)}" for key, names in sorted(self.inputs.items()) if names)
        attributes = ", ".join(f"{key}={_text(value)}" for key, value in sorted(self.attributes.items()))
        comment = f"  # {self.source}" if self.source else ""
        return f"({outputs}) = {self.type}({inputs}) {{{attributes}}}{comment}"


@dataclass
class LegacyBlock:
    """A block: its own variables and its operators in order.

    Attributes:
        index: Its number in the program.
        parent: The number of the enclosing block; -1 for the main block.
        variables: Its variables by name.
        ops: Its operators.
    """

    index: int
    parent: int
    variables: dict[str, BlockVariable] = field(default_factory=dict)
    ops: list[LegacyOp] = field(default_factory=list)


@dataclass
class LegacyProgram:
    """A program of a `.pdmodel` file.

    Attributes:
        blocks: Its blocks; the first is the main block.
        version: The version of Paddle that wrote it, as in 2006002; 0 for a build from source.
        op_versions: The version of each operator's definition.
    """

    blocks: list[LegacyBlock]
    version: int = 0
    op_versions: dict[str, int] = field(default_factory=dict)

    def variable(self, block: int, name: str) -> BlockVariable | None:
        """Resolve a variable name in a block or its enclosing blocks."""
        while block >= 0:
            found = self.blocks[block].variables.get(name)
            if found is not None:
                return found
            block = self.blocks[block].parent
        return None

    def ops(self) -> Iterator[LegacyOp]:
        """Yield all operators, block by block."""
        for block in self.blocks:
            yield from block.ops

    def __str__(self) -> str:
        lines = [f"program version {self.version}"]
        for block in self.blocks:
            lines.append(f"block {block.index}" + (f" in block {block.parent}" if block.parent >= 0 else "") + " {")
            lines += [f"  {variable}" for _, variable in sorted(block.variables.items())]
            lines += [f"  {op}" for op in block.ops]
            lines.append("}")
        return "\n".join(lines) + "\n"


def _names(names: list[str]) -> str:
    return f"%{names[0]}" if len(names) == 1 else f"[{', '.join(f'%{name}' for name in names)}]"


def _text(value: Attribute) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
