"""The verifier: checks the invariants of a valid model in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import printable

if TYPE_CHECKING:
    from dovetail.ir.model import Model

__all__ = ["verify_model"]

_SHOWN = 5


def verify_model(model: Model, *, changed: str = "") -> None:
    """Verify the structure of `model`, and its types according to its dialect.

    Args:
        model: The model.
        changed: The last step that changed it, for the message.

    Raises:
        DovetailError: The model is invalid; the message names up to five nodes.
    """
    from dovetail.ir.verifier.structure import structure_problems, weight_problems

    problems, scopes = structure_problems(model)
    # Types are checked only if the structure is valid.
    if not problems:
        check = model.dialect.type_problems if model.dialect is not None else None
        problems = [problem for opsets, nodes in scopes for problem in check(nodes, opsets)] if check else []
        problems += weight_problems(model)
    if problems:
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        by = f" after {changed}" if changed else ""
        raise DovetailError(
            f"the model is not correct{by}:\n  " + "\n  ".join(map(printable, problems[:_SHOWN])) + more
        )
