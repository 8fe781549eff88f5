"""What a rule says about the parameters of quantised ports."""

from __future__ import annotations

from typing import NamedTuple


class Sharing(NamedTuple):
    """What a rule says about the parameters of quantised ports.

    Attributes:
        same_scale: Where the parameters come from that ports share: `all`, `input`, `output`, `consumer`, `free`; empty
            if they share none.
        ports: The ports that share them; empty for all.
        fuses: The operators that are computed together with the node, if they alone read its first output.
    """

    same_scale: str = ""
    ports: frozenset[str] = frozenset()
    fuses: tuple[str, ...] = ()
