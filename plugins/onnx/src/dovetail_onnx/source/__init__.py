"""Checks of source models: defects of a file are reported with its name, before any pass runs.

The rules check the proto as it was read, in one walk over all nodes. Everything that `normalize` repairs is accepted:
nodes out of order, names that shadow outer ones, initializers listed as inputs, unnamed nodes, local functions. Type
errors that only inference finds are not checked here; `Source.fault` does that after a pass has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_onnx.source.problems import Problems

if TYPE_CHECKING:
    import onnx

    from dovetail_onnx.external import TensorLoader

__all__ = ["check_source"]


def check_source(proto: onnx.ModelProto, loader: TensorLoader) -> None:
    """Check a model as it was read, with all tensors in attributes, bodies and functions.

    External data of these tensors is inlined. Initializers of the main graph are left alone: the caller has checked
    them.

    Raises:
        DovetailError: The model is invalid; names the file and the first problem.
    """
    from dovetail_onnx.source.functions import check_functions
    from dovetail_onnx.source.graphs import check_main_graph, check_training
    from dovetail_onnx.source.problems import check_versions, encoding_problem, imports_of

    problems = Problems(loader.name)
    if problem := encoding_problem(proto):
        problems.add(problem)
        problems.raise_first()
    try:
        check_versions(proto, problems)
        # The rules below need valid opset versions and function names.
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
