"""Reader of Paddle 3 programs (`.json`) to `pd_op` graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.plugin.loading import check_regular
from dovetail.text import printable
from dovetail_onnx.files.parsing import Malformed, parse_json

from dovetail_paddle.element_types import element_type
from dovetail_paddle.parameters import DeclaredParameter, map_parameters
from dovetail_paddle.pir.attributes import PirProblem, type_of
from dovetail_paddle.pir.block import PirBlock, PirProgram
from dovetail_paddle.translate.program import initializer

if TYPE_CHECKING:
    import onnx_ir as ir


NEWEST = 4
"""Newest supported version of the format."""

_LARGEST = 512 << 20  # bytes; the programs of the largest nets have a few megabytes
_AGAIN = "export or copy the program again"


def read_pir(path: Path, parameters: Path) -> ir.Model:
    """Read a program with its parameters.

    Raises:
        DovetailError: The file is not such a program, is of a newer version, or is malformed; or its parameters are
            malformed.
    """
    check_regular(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise DovetailError(f"{path} is larger than {_LARGEST >> 20} MiB", "this is no program of Paddle")
        document = parse_json(seen(path).read_bytes())
    except OSError as error:
        raise DovetailError(f"{path} cannot be read: {error.strerror or error}", "check the path") from error
    except Malformed as error:
        raise DovetailError(f"{error.at(str(path))}, so it is not a Paddle program", _AGAIN) from None
    return _model(document, path, parameters)


def _model(document: Any, path: Path, parameters: Path) -> ir.Model:
    import onnx_ir as ir

    head = document.get("base_code") if isinstance(document, dict) else None
    if not isinstance(head, dict) or head.get("magic") != "pir":
        raise DovetailError(f"{path} is not a Paddle program: it has no mark 'pir'", "name a .json of Paddle 3")
    version = head.get("version")
    if not isinstance(version, int) or version > NEWEST:
        problem = f"{path} is of version {version} of Paddle's format, and {NEWEST} is the newest that is read here"
        raise DovetailError(problem, "update dovetail-paddle, or export with an older Paddle")
    try:
        block = _only_block(document.get("program"))
        held = _parameters(block["ops"])
        program = PirProgram()
        program.graphs.reserve(_result_names(block["ops"], {item.name for item in held}))
        main = PirBlock(program, block, None)
        initializers = []
        tensors = map_parameters(parameters, {item.name: item.declared for item in held if item.saved})
        for item in held:
            tensor = tensors[item.name] if item.saved else item.scratch()
            value = initializer(program.graphs.value_name(item.name), tensor)
            main.set(item.number, value)
            initializers.append(value)
        main.translate()
        if not program.outputs:
            raise PirProblem("the program has no result")
    except PirProblem as error:
        raise DovetailError(printable(f"{path}: {error}"), _AGAIN) from None
    graph = main.graph("main", program.inputs, [value for _, value in sorted(program.outputs.items())])
    for value in initializers:
        graph.register_initializer(value)
    return ir.Model(graph, ir_version=10, producer_name="paddle", producer_version=f"pir {version}")


def _only_block(program: Any) -> dict[str, Any]:
    try:
        (region,) = program["regions"]
        (block,) = region["blocks"]
        ops = block["ops"]
    except (TypeError, KeyError, ValueError):
        raise PirProblem("the program is not one region of one block") from None
    if not isinstance(ops, list):
        raise PirProblem("the program has no list of operators")
    return block


class _Parameter(NamedTuple):
    """A parameter of a program; an unsaved one is scratch memory of training, which inference does not read."""

    number: int
    name: str
    declared: DeclaredParameter
    saved: bool

    def scratch(self) -> ir.TensorProtocol:
        """Return zeros for an unsaved parameter."""
        import numpy as np
        import onnx_ir as ir

        shape = [max(extent, 0) for extent in self.declared.shape]
        return ir.tensor(np.zeros(shape, element_type(self.declared.dtype).numpy()), name=self.name)


def _parameters(ops: list[Any]) -> list[_Parameter]:
    """Return the parameters that a program declares."""
    found, names = [], set()
    for index, op in enumerate(ops):
        if not isinstance(op, dict) or op.get("#") not in ("p", "0.parameter"):
            continue
        try:
            name, number, described, kept = op["A"][3], op["O"]["%"], op["O"]["TT"], op.get("OA", (True,))[0]
        except (TypeError, KeyError, IndexError):
            raise PirProblem(f"operator {index} of block 0 is no parameter that can be read") from None
        info = type_of(described)
        if not isinstance(name, str) or not isinstance(number, int) or not info.dtype or info.shape is None:
            raise PirProblem(f"operator {index} of block 0 is no parameter that can be read")
        if name in names:
            raise PirProblem(f"there are two parameters '{name}'")
        names.add(name)
        found.append(_Parameter(number, name, DeclaredParameter(info.dtype, info.shape), bool(kept)))
    return found


def _result_names(ops: list[Any], given: set[str]) -> list[str]:
    """Return the names of the program's results that no input or parameter uses."""
    found: list[str] = []
    taken = set(given)
    for op in ops:
        if isinstance(op, dict) and op.get("#") in ("1.data", "1.feed", "1.fetch"):
            for entry in op.get("A", []):
                if isinstance(entry, dict) and entry.get("N") == "name" and isinstance(entry.get("AT"), dict):
                    (found.append if op["#"] == "1.fetch" else taken.add)(entry["AT"].get("D"))
    return [name for name in found if isinstance(name, str) and name not in taken]
