"""Dovetail cuts a model into the parts that each backend does best, joins them, and can say why.

    import dovetail
    compiled = dovetail.compile("model.onnx", ["cpu-bf16"], data="inputs.npz")
    print(compiled.summary())

Everything is imported when it is first used, so that importing this package costs next to nothing. Installed
distributions bring further functions, `dovetail.verify` say; see `dovetail.api_extensions`.
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

    # Kept, so that only the first use looks at what is installed.
    globals()[name] = found = api_extension(name)
    return found


def __dir__() -> list[str]:
    from dovetail.api_extensions import member_function_names

    return sorted({*__all__, *member_function_names()})
