"""The schemas of operators that have their kernel: those of their entries, with name and key of the kernel."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dovetail_operators.entries import Argument
from dovetail_operators.library import OperatorLibrary, library_of
from dovetail_operators.opening import register

from dovetail_kernels.lowered import DOMAIN, KERNEL, KEY

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin.registry import Registry

__all__ = ["register_lowered"]


def register_lowered(registry: Registry) -> None:
    """Register them with onnx.

    Raises:
        DovetailError: A file of operators is at fault.
    """
    register(_schemas(library_of(registry)))


@lru_cache(maxsize=8)
def _schemas(library: OperatorLibrary) -> tuple[onnx.defs.OpSchema, ...]:
    more = (Argument(KERNEL, "str"), Argument(KEY, "str"))
    found = library.definitions.items()
    return tuple(
        one.in_domain(f"{DOMAIN}.{domain}", more) for (domain, _), one in found if one.entry.kernel is not None
    )
