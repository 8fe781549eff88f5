"""Checking the source model: what is wrong with a file is said of the file, before any pass sees it.

The rules judge the proto as it was read, in one walk over all nodes. What `normalise` repairs is accepted: nodes out
of order, names in bodies that hide names outside, initializers listed as inputs, nodes without names, local functions.
Types that only inference can find are not judged here; `Source.fault` looks at them when a pass has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.source.problems import Problems

if TYPE_CHECKING:
    import onnx

    from dovetail.ir.external import TensorLoader

__all__ = ["check_source"]


def check_source(proto: onnx.ModelProto, loader: TensorLoader) -> None:
    """Check a model as it was read, and admit every tensor that it holds.

    Data of other files that must stay with the proto (in attributes, bodies and functions) is read in; the
    initializers of the main graph are not touched, the caller has admitted them.

    Raises:
        DovetailError: The model is wrong; the message names the file and the first thing that is wrong.
    """
    from dovetail.ir.source.encoding import encoding_problem
    from dovetail.ir.source.functions import check_functions
    from dovetail.ir.source.graphs import check_main_graph, check_training
    from dovetail.ir.source.versions import check_versions, imports_of

    problems = Problems(loader.name)
    if problem := encoding_problem(proto):
        problems.add(problem)
        problems.raise_first()
    try:
        check_versions(proto, problems)
        # The rules below ask for operators at versions, and for functions by name.
        problems.raise_first()
        opsets = imports_of(proto.opset_import)
        functions = check_functions(proto, loader, problems)
        check_main_graph(proto, opsets, functions, loader, problems)
        check_training(proto, opsets, functions, loader, problems)
    except UnicodeDecodeError as error:  # attributes hold text as bytes
        text = error.object[:40].decode(errors="replace")
        problem = f"{loader.name}: an attribute holds text that is not UTF-8 ({text!r})"
        raise DovetailError(problem, "export or copy the model again") from None
    problems.raise_first()
