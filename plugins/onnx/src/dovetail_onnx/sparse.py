"""Convert sparse tensors to dense ones when a model is opened; no other code handles sparse tensors.

Indices are checked first, and the dense size is limited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from dovetail_onnx.limits import SPARSE_BYTES
from dovetail_onnx.tensor_data import form_problem, known_type, size_in_bytes

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from dovetail_onnx.external import TensorLoader


_SPARSE_TENSOR, _SPARSE_TENSORS, _TENSOR = 11, 12, 4  # onnx.AttributeProto.AttributeType


def densify_initializers(graph: onnx.GraphProto, loader: TensorLoader) -> None:
    """Turn the sparse initializers of `graph` into dense ones of the same names.

    Raises:
        DovetailError: One is malformed, or too large when dense.
    """
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, f"sparse initializer '{sparse.values.name}'", loader))
    del graph.sparse_initializer[:]


def densify_attributes(attributes: Iterable[onnx.AttributeProto], loader: TensorLoader, label: str) -> None:
    """Turn the sparse value of a constant into a dense one.

    Raises:
        DovetailError: It is malformed, too large when dense, or a list of sparse tensors.
    """
    for attribute in attributes:
        if attribute.type == _SPARSE_TENSORS:
            raise loader.refuse(f"attribute '{attribute.name}' of {label}", "is a list of sparse tensors", _NO_LISTS)
        if attribute.type == _SPARSE_TENSOR and attribute.HasField("sparse_tensor"):
            attribute.t.CopyFrom(_dense(attribute.sparse_tensor, f"attribute '{attribute.name}' of {label}", loader))
            attribute.ClearField("sparse_tensor")
            attribute.type = cast("onnx.AttributeProto.AttributeType", _TENSOR)
            attribute.name = attribute.name.removeprefix("sparse_")


_NO_LISTS = "no ONNX operator takes one; export the model again"


def _dense(sparse: onnx.SparseTensorProto, what: str, loader: TensorLoader) -> onnx.TensorProto:
    import numpy as np
    import onnx

    values, indices = sparse.values, sparse.indices
    loader.check_and_inline(values, f"the values of {what}")
    loader.check_and_inline(indices, f"the indices of {what}")
    dense = onnx.TensorProto(name=values.name, data_type=values.data_type, dims=sparse.dims)
    if problem := form_problem(dense):
        raise loader.refuse(what, problem)
    kind = known_type(values.data_type)
    if kind.bits < 8 or indices.data_type != onnx.TensorProto.INT64:
        raise loader.refuse(what, f"is sparse with values of {kind.name} and indices of type {indices.data_type}")
    if size_in_bytes(dense) > SPARSE_BYTES:
        size = f"is larger than {SPARSE_BYTES >> 20} MiB with its zeros ({list(sparse.dims)} {kind.name})"
        raise loader.refuse(what, size, "store it as a dense initializer")
    content = onnx.numpy_helper.to_array(values).reshape(-1)
    places = _places(onnx.numpy_helper.to_array(indices), list(sparse.dims), len(content))
    if places is None or len(values.dims) != 1:
        raise loader.refuse(what, f"has indices that do not fit {len(content)} values in {list(sparse.dims)}")
    filled = np.zeros(math.prod(sparse.dims), content.dtype)
    filled[places] = content
    dense.raw_data = filled.tobytes()
    return dense


def _places(indices: np.ndarray, dims: list[int], count: int) -> np.ndarray | None:
    """Convert indices in either of ONNX's two forms to flat positions; None if any is out of range."""
    import numpy as np

    if indices.shape == (count,):
        flat = indices
    elif indices.shape == (count, len(dims)):
        if ((indices < 0) | (indices >= np.array(dims))).any():
            return None
        flat = np.ravel_multi_index(tuple(indices.T), dims) if count else np.zeros(0, np.int64)
    else:
        return None
    inside = not count or flat.min() >= 0 and flat.max() < math.prod(dims)
    return flat if inside else None
