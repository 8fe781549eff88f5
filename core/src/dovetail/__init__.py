"""Dovetail partitions a model over backends, inserts the conversions between the parts, and explains each decision.

    import dovetail
    compiled = dovetail.compile("model.onnx", ["cpu-bf16"], data="inputs.npz")
    print(compiled.summary())

Names are imported on first use, so importing this package is cheap. Installed distributions add further functions, such
as `dovetail.verify`; see `dovetail.api_extensions`.
"""

from __future__ import annotations

from dovetail.lazy_imports import attach_stub

__version__ = "0.1.0"

_own, _, _names = attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]


def __getattr__(name: str) -> object:
    if name in _names:
        return _own(name)
    from dovetail.api_extensions import api_extension

    # Cache it, so that entry points are looked up once per name.
    globals()[name] = found = api_extension(name)
    return found


def __dir__() -> list[str]:
    from dovetail.api_extensions import member_function_names

    return sorted({*__all__, *member_function_names()})
