"""What the shapes of results follow from, where no standard function says it."""

from dataclasses import replace


def rows_or_same(x, rows):
    """The shape of the input; with `rows`, as a matrix of its first axis and all others.

    Raises:
        ValueError: The input is no matrix, and cannot become one.
    """
    if not rows or x.shape is None:
        return x
    if len(x.shape) < 2:
        raise ValueError("a tensor of one axis has no rows")
    rest = 1
    for extent in x.shape[1:]:
        rest = rest * extent if isinstance(rest, int) and isinstance(extent, int) else None
    return replace(x, shape=(x.shape[0], rest))
