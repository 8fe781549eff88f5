"""Types of results of `ai.onnx.ml`, for which onnx and ONNX Runtime infer no shape.

The extents are those that ONNX Runtime's kernels make; the specification names them only in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

ML_DOMAIN = "ai.onnx.ml"
_OF_EVERY_ELEMENT = frozenset({"Imputer", "LabelEncoder", "Normalizer", "Scaler"})
_REGRESSORS = {"LinearRegressor": "targets", "SVMRegressor": "", "TreeEnsembleRegressor": "n_targets"}
"""Each with the attribute that counts the numbers of a row; 1 without it."""
_CLASSES = ("classlabels_strings", "classlabels_int64s")


def ml_output_types(node: onnx.NodeProto, given: Mapping[str, onnx.TypeProto]) -> list[onnx.TypeProto | None]:
    """Return the types of the results of a node of `ai.onnx.ml`; None for each that depends on unknown values.

    Args:
        node: The node.
        given: The type of each of its inputs.
    """
    import onnx

    nothing: list[onnx.TypeProto | None] = [None] * len(node.output)
    known = given[node.input[0]].tensor_type if node.input and node.input[0] in given else None
    if known is None or not known.HasField("shape"):
        return nothing
    extents: list[int | str | None] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in known.shape.dim
    ]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    rows = extents[0] if len(extents) > 1 else 1
    kind = onnx.TensorProto
    number: int = kind.FLOAT

    def typed(element: int, shape: Sequence[int | str | None]) -> onnx.TypeProto:
        return onnx.helper.make_tensor_type_proto(element, shape)

    if node.op_type in _OF_EVERY_ELEMENT:
        if node.op_type == "Imputer":
            number = known.elem_type
        elif node.op_type == "LabelEncoder":
            if "classes_strings" not in attributes:  # later versions, which onnx infers
                return nothing
            number = kind.INT64 if known.elem_type == kind.STRING else kind.STRING
        return [typed(number, extents)]
    if node.op_type in _REGRESSORS:
        counted = attributes.get(_REGRESSORS[node.op_type])
        return [typed(number, [rows, 1 if counted is None else counted.i])]
    if node.op_type == "TreeEnsembleClassifier":
        strings, integers = (attributes.get(name) for name in _CLASSES)
        count = len(strings.strings) if strings is not None else len(integers.ints) if integers is not None else None
        return [typed(kind.INT64 if strings is None else kind.STRING, [rows]), typed(number, [rows, count])]
    return nothing
