"""The verifier: the invariants of a valid model, checked in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import printable

if TYPE_CHECKING:
    from dovetail.ir.model import Model

__all__ = ["verify_model"]

_SHOWN = 5


def verify_model(model: Model, *, changed: str = "") -> None:
    """Check the structure and all types of `model`.

    Args:
        model: The model.
        changed: What changed it last, for the message.

    Raises:
        DovetailError: The model is invalid; names up to five nodes.
    """
    from dovetail.ir.verifier.structure import structure_problems
    from dovetail.ir.verifier.types import type_problems, weight_problems

    problems, scopes = structure_problems(model)
    # Types are checked only if the structure is valid.
    if not problems:
        flows = model.dialect.body_flows if model.dialect is not None else None
        problems = [problem for opsets, nodes in scopes for problem in type_problems(nodes, opsets, flows)]
        problems += weight_problems(model)
    if problems:
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        by = f" after {changed}" if changed else ""
        raise DovetailError(
            f"the model is not correct{by}:\n  " + "\n  ".join(map(printable, problems[:_SHOWN])) + more
        )
