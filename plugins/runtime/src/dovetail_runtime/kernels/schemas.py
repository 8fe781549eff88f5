"""The schemas of lowered operators: those of their entries, with name and key of the kernel, and of copies."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dovetail_schemas.operator_files.entries import Argument
from dovetail_schemas.operator_files.library import OperatorLibrary, library_of
from dovetail_schemas.operator_files.opening import register
from dovetail_schemas.operator_files.schemas import tensor_types

from dovetail_runtime.kernels.lowered import DEVICE, DOMAIN, KERNEL, KEY, TO_DEVICE, TO_HOST

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin.registry import Registry


def register_lowered(registry: Registry) -> None:
    """Register them with onnx.

    Raises:
        DovetailError: A file of operators is at fault.
    """
    register(_schemas(library_of(registry)))
    if len(registry.device_memory):
        register(_copies())


@lru_cache(maxsize=8)
def _schemas(library: OperatorLibrary) -> tuple[onnx.defs.OpSchema, ...]:
    more = (Argument(KERNEL, "str"), Argument(KEY, "str"))
    found = library.definitions.items()
    return tuple(
        one.in_domain(f"{DOMAIN}.{domain}", more) for (domain, _), one in found if one.entry.kernel is not None
    )


@lru_cache(maxsize=1)
def _copies() -> tuple[onnx.defs.OpSchema, ...]:
    """The schemas of copies to a device and back: the result has type and shape of the input."""
    import onnx

    def same(context: Any) -> None:
        context.set_output_type(0, context.get_input_type(0))

    made, port = [], onnx.defs.OpSchema.FormalParameter
    types = ("T", tensor_types(), "any tensor")
    device = onnx.defs.OpSchema.Attribute(DEVICE, onnx.defs.OpSchema.AttrType.STRING, required=True)
    for name in (TO_DEVICE, TO_HOST):
        schema = onnx.defs.OpSchema(
            name, DOMAIN, 1, inputs=[port("x", "T")], outputs=[port("out", "T")], type_constraints=[types],
            attributes=[device],
        )  # fmt: skip
        schema.set_type_and_shape_inference_function(same)
        made.append(schema)
    return tuple(made)
