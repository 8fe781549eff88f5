"""Drawing values that a step of a random graph can take."""

import numpy as np

from .grown import Impossible

INTEGERS = (np.int64, np.int32)


def pick(g, accept=lambda array: True):
    """One of the values that `accept`; later ones more often."""
    found = g.values(accept)
    if not found:
        raise Impossible("no such value")
    return found[-1 - int(g.rng.integers(min(len(found), 4)))] if g.rng.random() < 0.7 else str(g.rng.choice(found))


def floats(g, rank=None):
    """A value of the graph's floats."""
    return pick(g, lambda array: array.dtype == g.float and (rank is None or array.ndim == rank))


def integers(g):
    return pick(g, lambda array: array.dtype in INTEGERS and array.ndim)


def axes_form(g, op_type, value, axes, since, **attributes):
    """An operator with axes as an attribute or an input, as the opset has it."""
    if g.opset >= since:
        return g.add(op_type, value, g.whole(*axes), **attributes)
    return g.add(op_type, value, axes=list(axes), **attributes)


def broadcasts(one, other):
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1]))
