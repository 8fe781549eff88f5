"""Steps after all backends have claimed: fix-ups, remedies, and remarks on declined pins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import Claim, Claims
from dovetail.plugin.loading import calling, described, foreign_output
from dovetail.text import pluralize

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Context
    from dovetail.plugin import Backend, Remedy, Strategy

    from dovetail_placement.claiming import Claiming
    from dovetail_placement.pins import Pin


def fix_up_claims(claiming: Claiming, backend: Backend) -> None:
    """Let the strategy of `backend` withdraw and narrow its claims, until nothing changes.

    The strategy is called again after every change, because a claim may depend on a withdrawn one. Withdrawals are
    final, which guarantees termination. Withdrawn nodes are then offered to the following backends; earlier backends
    may get them in the next round, if there is one.

    Raises:
        DovetailError: The strategy fails, or does more than narrow claims and withdraw unpinned ones.
    """
    strategy, title = claiming.strategy_of(backend)
    changed = withdrawn = False
    while True:
        before = {id(claim.node): claim for name, claim in claiming.claimed.values() if name == backend.name}
        after = _asked(strategy, claiming, backend, list(before.values()), title)
        gone, narrowed = _compared(before, after, claiming, title)
        for claim in gone:
            claiming.withdraw(claim.node, backend.name)
        for claim in narrowed:
            if id(claim.node) in claiming.claimed:  # not in a body that was withdrawn with its control-flow node
                claiming.enter(backend.name, claim)
        changed, withdrawn = bool(gone or narrowed), withdrawn or bool(gone)
        if not changed:
            break
    if withdrawn:
        backends = claiming.ctx.backends
        for later in backends[backends.index(backend) + 1 :]:
            claiming.claim(later)


def _asked(strategy: Strategy, claiming: Claiming, backend: Backend, claims: list[Claim], title: str) -> list[Claim]:
    try:
        with foreign_output(title):
            answer = strategy.fix_up(claiming.view_of(backend), Claims(claims))
    except (DovetailError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise DovetailError(
            f"{title} failed in fix_up: {described(error)}",
            "repair it, name another one with --strategy, or leave its distribution out with --no-plugin",
        ) from error
    if not isinstance(answer, Claims) or not all(isinstance(claim, Claim) for claim in answer.claims):
        raise DovetailError(
            f"{title} returns {type(answer).__name__} from fix_up",
            "`fix_up` returns `Claims` with the claims that stay",
        )
    return answer.claims


def _compared(
    before: dict[int, Claim], after: list[Claim], claiming: Claiming, title: str
) -> tuple[list[Claim], list[Claim]]:
    """Return the withdrawn claims and the narrowed ones."""
    kept: dict[int, Claim] = {}
    for claim in after:
        node, known = claim.node, before.get(id(claim.node))
        if known is None:
            owner = claiming.claimed.get(id(node), ("nobody",))[0]
            raise DovetailError(
                f"{title} claims '{node.name}' ({node.op_type}) in fix_up, which is not its own: {owner} has it",
                "a fix-up withdraws or narrows claims; `claim` is where nodes are claimed",
            )
        if id(node) in kept:
            raise DovetailError(f"{title} returns '{node.name}' ({node.op_type}) twice from fix_up")
        if claim is not known:
            _check_narrowed(known, claim, claiming, title)
        kept[id(node)] = claim
    gone = [claim for key, claim in before.items() if key not in kept]
    for claim in gone:
        _check_unpinned(claim, claiming, title)
    # A control-flow node is withdrawn with all of its bodies.
    return gone, [claim for key, claim in kept.items() if claim is not before[key] and claim != before[key]]


def _check_narrowed(before: Claim, after: Claim, claiming: Claiming, title: str) -> None:
    for port, formats in after.ports.items():
        if port not in before.ports and before.ports or not set(formats) <= set(before.ports.get(port, formats)):
            raise DovetailError(
                f"{title} widens its claim on '{after.node.name}' in fix_up: {port} may be "
                f"{', '.join(map(str, formats))}, and was claimed as {', '.join(map(str, before.ports.get(port, ())))}",
                "a fix-up only withdraws or narrows claims",
            )
    # A pin leaves unnamed ports open; the formats that it names cannot be narrowed.
    if replace(after, ports=before.ports) != before or not all(after.ports.values()) and all(before.ports.values()):
        _check_unpinned(after, claiming, title)


def _check_unpinned(claim: Claim, claiming: Claiming, title: str) -> None:
    pin = claiming.pins.of(claim.node)
    if pin is not None:
        raise DovetailError(
            f"{title} changes the claim on '{claim.node.name}' in fix_up, which is pinned: {pin.request}",
            "a fix-up keeps pinned claims, and narrows only the formats that their pins leave open",
        )


def remedies_of(claiming: Claiming, names: Collection[str]) -> dict[str, list[tuple[str, Remedy]]]:
    """Return the remedies that strategies suggest for nodes, with their backends, by the given names.

    Args:
        claiming: The final claims of a round.
        names: Names of nodes, or of values that they compute.

    Raises:
        DovetailError: A strategy fails.
    """
    wanted, found = set(names), {}
    for node in claiming.flat.nodes:
        for name in (node.name, *(value.name for value in node.outputs)):
            if name in wanted and name not in found:
                found[name] = _remedies(claiming, node)
    return found


def _remedies(claiming: Claiming, node: ir.Node) -> list[tuple[str, Remedy]]:
    found: list[tuple[str, Remedy]] = []
    for backend in claiming.ctx.backends:
        strategy, title = claiming.strategy_of(backend)
        if claiming.claimed[id(node)][0] != backend.name:
            with calling(f"{title} asked for remedies,"):
                found += [(backend.name, remedy) for remedy in strategy.remedies(claiming.view_of(backend), node)]
    return found


_RULE = "declined"
_NAMED = 5


def remark_declined(declined: Sequence[tuple[Pin, str]], ctx: Context) -> None:
    """Remark every node that a file requested in vain, with one note for each key of the file.

    Args:
        declined: The pins, with the reason of the backend.
        ctx: The context of the run.
    """
    groups: dict[tuple[str, str], list[Pin]] = {}
    for pin, why in declined:
        request = pin.request
        then = f"; {request.if_declined}" if request.if_declined else ""
        why = f"{request.asked_by} asks for {request.backend}, which declines it: {why}{then}"
        ctx.remark("analysis", pin.node, _RULE, why)
        groups.setdefault((request.backend, request.if_declined), []).append(pin)
    for (backend, then), pins in groups.items():
        named = ", ".join(f"'{pin.node.name}' ({pin.request.asked_by})" for pin in pins[:_NAMED])
        more = f" and {len(pins) - _NAMED} others" if len(pins) > _NAMED else ""
        why = f"{backend} declines {pluralize(len(pins), 'node')} that the file asks for: {named}{more}"
        ctx.remark(
            "analysis", "", _RULE, f"{why}; {then}" if then else why,
            suggest="`dovetail explain` says why; leave the nodes out of the file, or change what breaks the limit",
        )  # fmt: skip
