"""Why a node cannot be written in integers."""


class NotIntegerError(Exception):
    """A node computes floats; the message says why, as the end of a sentence about it."""
