"""What layers can be ranked by."""

from __future__ import annotations

from dovetail.errors import UsageError
from dovetail.suggestions import did_you_mean

ORDERS = ("accumulated", "alone", "outputs", "cosine", "mse")
"""The first is the default."""


def check_order(by: str) -> None:
    """Refuse what layers cannot be ranked by.

    Raises:
        UsageError: It is none of `ORDERS`.
    """
    if by not in ORDERS:
        raise UsageError(f"layers cannot be ranked by {by!r}{did_you_mean(by, ORDERS)}", f"by: {', '.join(ORDERS)}")
