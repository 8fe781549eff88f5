"""Programs that a vendor's tool runs in its own process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.plugin import Executed, Session

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.plugin import Tool


class ToolProgram(Session):
    """A compiled program in the process of a tool, which takes one call at a time, from any thread.

    The tool's function `run(program, inputs)` gets the arrays of the node's inputs in their order, and returns those
    of its outputs.

    Args:
        program: The program, as `Tool.opened` returns it.
        node: The node that stands for it.
        precision: What the tool computes in, such as `int8`; empty if it does not tell.
    """

    def __init__(self, program: Tool, node: ir.Node, precision: str = ""):
        self._program, self._node, self._precision = program, node.name or "", precision
        self._inputs = [value.name or "" for value in node.inputs if value is not None]
        self._outputs = [value.name or "" for value in node.outputs]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name."""
        results = self._program.ask("run", inputs=[inputs[name] for name in self._inputs])
        return dict(zip(self._outputs, results, strict=True))

    def executed(self) -> dict[str, Executed]:
        """Return how the program is computed."""
        return {self._node: Executed(self._precision, "reported" if self._precision else "not-reported")}

    def close(self) -> None:
        """Let the tool forget the program."""
        self._program.close()
