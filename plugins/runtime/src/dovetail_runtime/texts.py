"""Arrays of texts, as ONNX Runtime takes them.

It reads bytes of a fixed width past their end, and takes a Python `bytes` for the text `b'...'` (1.32), so that a word
is known or not by what happens to follow it in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import numpy as np


def as_texts(array: np.ndarray, name: str) -> np.ndarray:
    """Return an array of bytes, of NumPy's texts or of objects as one of Python's `str`; bytes are read as UTF-8.

    Arrays of anything else, and objects that are no bytes, are returned as they are.

    Args:
        array: The array.
        name: The input that it is for.

    Raises:
        DovetailError: Bytes are not UTF-8.
    """
    import numpy as np

    try:
        if array.dtype.kind == "S":
            return np.char.decode(array, "utf-8").astype(object)
        if array.dtype.kind == "O" and any(isinstance(one, bytes) for one in array.flat):
            decoded = [one.decode() if isinstance(one, bytes) else one for one in array.flat]
            return np.array([*decoded, None], object)[:-1].reshape(array.shape)
    except UnicodeDecodeError as error:
        problem = f"input '{name}' is string, and bytes in it are not UTF-8: {error}"
        raise DovetailError(problem, "give texts, or bytes in UTF-8") from None
    return array.astype(object) if array.dtype.kind in "UT" else array
