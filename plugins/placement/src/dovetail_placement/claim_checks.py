"""Validation of a strategy's claims and options."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.planning import Claim, Claims
from dovetail.plugin.loading import described, foreign_output

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FlatGraph
    from dovetail.plugin import Backend, Strategy, View

    from dovetail_placement.view import BackendView


def ask_for_claims(strategy: Strategy, view: View, backend: Backend, title: str) -> Claims:
    """Run a strategy's `claim`.

    Args:
        strategy: The strategy.
        view: Its view.
        backend: The backend that it claims for.
        title: Name and distribution of the strategy, for messages.

    Raises:
        DovetailError: The strategy rejects the model, fails, or does not return claims.
    """
    try:
        with foreign_output(title):
            claims = strategy.claim(view, backend)
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise DovetailError(
            f"{title} failed: {described(error)}",
            "repair it, name another one with --strategy, or leave its distribution out with --no-plugin; --debug "
            "shows where it failed",
        ) from error
    if not isinstance(claims, Claims) or not all(isinstance(claim, Claim) for claim in claims.claims):
        raise DovetailError(
            f"{title} returns {type(claims).__name__}", "`claim` returns `dovetail.plugin.Claims`, a list of `Claim`"
        )
    return claims


def check_claims(claims: Sequence[Claim], flat: FlatGraph, view: BackendView, title: str, whole: bool) -> None:
    """Reject claims that contradict each other, or that are on nodes not offered to the strategy.

    Args:
        claims: The strategy's claims.
        flat: The nodes of the model.
        view: The strategy's view.
        title: Name of the strategy, for messages.
        whole: Whether nodes must be legal, and control-flow nodes claimed with all of their bodies. The host claims
            what it can run; the rest is the model's fault, not the strategy's.

    Raises:
        DovetailError: A claim holds something other than formats; or a node is claimed twice, was not offered, belongs
            to no graph of the model, or is claimed without the rest of its control-flow node.
    """
    known = {id(node) for node in flat.nodes}
    claimed: set[int] = set()
    checked: dict[int, object] = {}
    for claim in claims:
        node = claim.node
        if id(node) not in known:
            raise DovetailError(
                f"{title} claims '{node.name}' ({node.op_type}), which is not a node of the model",
                "a strategy claims the nodes that its view gives it, and copies none of them",
            )
        if view.hides(node):
            raise DovetailError(
                f"{title} claims '{node.name}' ({node.op_type}), which was not offered to it: it is pinned, claimed by "
                "a backend named earlier, or was refused before",
                "claim only what `view.nodes()` and `view.whole(node)` give",
            )
        if id(node) in claimed:
            raise DovetailError(
                f"{title} claims '{node.name}' ({node.op_type}) twice", "a strategy makes one claim per node"
            )
        claimed.add(id(node))
        if whole and (verdict := view.verdict(node)).ok is False:
            why = "; ".join(reason.text for reason in verdict.reasons)
            raise DovetailError(
                f"{title} claims '{node.name}' ({node.op_type}), which the backend does not take: {why}",
                "claim only nodes whose `view.verdict(node).ok` is not False",
            )
        # Equal claims share their mapping of ports, which is checked once.
        if id(claim.ports) not in checked:
            checked[id(claim.ports)] = claim.ports
            _check_formats(claim, title)
    if whole and flat.holders:
        _check_whole(claims, flat, claimed, title)


def _check_formats(claim: Claim, title: str) -> None:
    for port, formats in claim.ports.items():
        wrong = next((format_ for format_ in formats if not isinstance(format_, Format)), None)
        if wrong is not None:
            what = f"{title} claims '{claim.node.name}' ({claim.node.op_type}) with {wrong!r} for port '{port}'"
            raise DovetailError(f"{what}, which is no format", "make formats with `dovetail.plugin.Format.of`")


def _check_whole(claims: Sequence[Claim], flat: FlatGraph, claimed: Collection[int], title: str) -> None:
    """Check that control-flow nodes are claimed with all of their bodies, because one engine runs them together."""
    looked_at: set[int] = set()
    for claim in claims:
        outermost = flat.outermost(claim.node)
        if id(outermost) in looked_at:
            continue
        looked_at.add(id(outermost))
        missing = next((part for part in (outermost, *flat.body_nodes(outermost)) if id(part) not in claimed), None)
        if missing is not None:
            raise _torn(claim.node, missing, outermost, title)


def _torn(node: ir.Node, missing: ir.Node, outermost: ir.Node, title: str) -> DovetailError:
    return DovetailError(
        f"{title} claims '{node.name}' without '{missing.name}', although one engine runs '{outermost.name}' "
        f"({outermost.op_type}) whole",
        "claim every node of `view.whole(node)` or none",
    )
