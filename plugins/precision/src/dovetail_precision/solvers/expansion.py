"""Expansion moves: improve a labeling with more than two formats until no move lowers its cost.

A move offers every variable one other choice; each takes it or stays. That is an energy of two labels, of which the cut
finds the minimum if it is submodular (Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts",
2001; Lempitsky, Rother, Roth and Blake, "Fusion moves for Markov random field optimization", 2010). Shared conversions
are not always: a float32 value that is read in int8 and in float16 costs less to convert for one reader if it moves to
float16 itself, and more for the other. Such a term is replaced by an upper bound that equals it where nothing moves, so
that the cost never rises. There are two bounds: the price may not fall when the producer moves, or it is due whether
the readers move or not. Every move is tried with both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail_precision.choices import FormatChoice, SharedFormat, uniform
from dovetail_precision.solvers.energy import INF, Energy

if TYPE_CHECKING:
    from dovetail.ir import Format

    from dovetail_precision.costs import Prices
    from dovetail_precision.def_use import DefUseChain
    from dovetail_precision.problem import FormatVariable


_SWEEPS = 12  # moves to every label; a few suffice


class _Ends(NamedTuple):
    """The formats at one end of a value, if the variable stays and if it moves."""

    vertex: int | None
    stays: Format | SharedFormat
    moves: Format | SharedFormat


class Expansion:
    """The moves of one problem, from any labeling in `FormatVariable.chosen`."""

    def __init__(
        self,
        chains: Sequence[DefUseChain],
        known: Mapping[int, tuple[FormatChoice, ...]],
        free: Mapping[int, FormatVariable],
        prices: Prices,
    ):
        self._known = known
        self._free = free
        self._prices = prices
        self._chains = [chain for chain in chains if self._varies(chain)]
        # The compute price of a fill belongs to its value, which follows its readers.
        self._filled = {id(chain.producer) for chain in chains if chain.follows and chain.producer}

    def run(self) -> None:
        """Move until nothing improves."""
        moves = [(offer, producers) for offer in self._offers() for producers in (False, True)]
        idle = 0
        for _ in range(_SWEEPS):
            for offer, producers in moves:
                idle = 0 if self._move(offer, producers) else idle + 1
                if idle >= len(moves):
                    return

    def fuse(self, labels: Mapping[int, FormatChoice]) -> None:
        """Adopt the choices of another labeling, by the id of the variable, that lower the cost."""
        for producers in (False, True):
            self._move({key: labels[key] for key in self._free}, producers)

    def _offers(self) -> list[dict[int, FormatChoice]]:
        """Return the choices that each label offers, low formats first.

        A label is a format, and a number where a variable has several choices with that nominal format.
        """
        offers: dict[tuple[Format, int], dict[int, FormatChoice]] = {}
        for key in self._free:
            counts: dict[Format, int] = {}
            for choice in self._known[key]:
                number = counts[choice.nominal] = counts.get(choice.nominal, -1) + 1
                offers.setdefault((choice.nominal, number), {})[key] = choice
        ordered = sorted(offers, key=lambda label: (label[0].dtype.bitwidth, str(label[0]), label[1]))
        return [offers[label] for label in ordered]

    def _move(self, offer: Mapping[int, FormatChoice], producers: bool) -> bool:
        """Make the best move to the choices in `offer`; return whether the cost fell."""
        offered = {key: choice for key, choice in offer.items() if choice is not self._free[key].chosen}
        if not offered:
            return False
        move = _Move(self._free, offered, self._prices, self._filled, producers)
        for chain in self._chains:
            move.add(chain)
        before = self._cost(move.touched)
        chosen = move.best()
        if not chosen:
            return False
        kept = {key: self._free[key].chosen for key in chosen}
        for key in chosen:
            self._free[key].chosen = offered[key]
        if self._cost(move.touched) < before:
            return True
        # Capacities of a large cut are rounded, so its minimum may not be one.
        for key, choice in kept.items():
            self._free[key].chosen = choice
        return False

    def _cost(self, chains: Sequence[DefUseChain]) -> int:
        """Return the price of the free variables and of `chains`."""
        prices = self._prices
        total = sum(
            prices.compute(variable, variable.chosen) for key, variable in self._free.items() if key not in self._filled
        )
        for chain in chains:
            wanted = {variable.held_at(port) for variable, port in chain.uses}
            wanted |= {chain.present} if chain.kept else set()
            if chain.constant:
                total += sum(prices.version(chain, format_) for format_ in wanted)
                continue
            held = _held(chain, wanted)
            if chain.producer is not None and chain.follows:
                total += prices.compute(chain.producer, uniform(held))
            total += sum(prices.join(chain, held, format_) for format_ in wanted)
            total += sum(prices.compute(follower, uniform(held)) for follower in chain.cast_readers)
        return total

    def _varies(self, chain: DefUseChain) -> bool:
        """Check whether any move changes the price of a value."""
        ends = (chain.producer, *chain.readers)
        return any(id(variable) in self._free for variable in ends)


def _held(chain: DefUseChain, wanted: set[Format | SharedFormat]) -> Format | SharedFormat:
    if chain.follows:
        return chain.follows if wanted == {chain.follows} else chain.present
    return chain.present if chain.producer is None else chain.producer.held_at(chain.produced_at)


class _Move:
    """The energy of one move: a vertex that is low moves, and one that is high stays.

    Args:
        free: The variables with a choice, by id.
        offered: The choices that the move offers to some of them.
        prices: The prices.
        filled: The variables that follow their readers.
        producers: Where a price is not submodular, let it depend on the producer alone, else on the readers alone.
    """

    def __init__(
        self,
        free: Mapping[int, FormatVariable],
        offered: Mapping[int, FormatChoice],
        prices: Prices,
        filled: set[int],
        producers: bool,
    ):
        self._bounds_follow_producers = producers
        self.touched: list[DefUseChain] = []
        self._energy = Energy()
        self._offered = offered
        self._prices = prices
        self._vertices = {
            key: self._energy.add(0 if key in filled else prices.gain(free[key], choice, free[key].chosen))
            for key, choice in offered.items()
        }

    def best(self) -> list[int]:
        """Return the ids of the variables that move."""
        low = self._energy.minimize()
        return [key for key, vertex in self._vertices.items() if low[vertex]]

    def add(self, chain: DefUseChain) -> None:
        """Add the price of a value, or of the versions of a weight."""
        producer = self._end(chain.producer, chain.produced_at) if chain.producer else None
        readers = [self._end(variable, port) for variable, port in chain.uses]
        if not any(end is not None and end.vertex is not None for end in (producer, *readers)):
            return
        self.touched.append(chain)
        if chain.follows:
            self._add_following(chain, chain.follows, readers)
            return
        held = producer or _Ends(None, chain.present, chain.present)
        if held.vertex is not None:
            for follower in chain.cast_readers:
                self._energy.bias[held.vertex] += self._prices.gain(follower, uniform(held.moves), uniform(held.stays))
        formats = {end.stays: None for end in readers} | {end.moves: None for end in readers}
        if chain.kept:
            formats[chain.present] = None
        for format_ in formats:
            self._add_need(chain, format_, held, readers)

    def _end(self, variable: FormatVariable, port: str) -> _Ends:
        vertex = self._vertices.get(id(variable))
        stays = variable.held_at(port)
        moves = stays if vertex is None else variable.held_at(port, self._offered[id(variable)])
        return _Ends(vertex, stays, moves)

    def _add_need(
        self, chain: DefUseChain, format_: Format | SharedFormat, held: _Ends, readers: Sequence[_Ends]
    ) -> None:
        """Add the price of converting a value to `format_`, if any reader wants it."""
        if chain.constant:
            staying = moving = self._prices.version(chain, format_)
        else:
            staying = self._prices.join(chain, held.stays, format_)
            moving = self._prices.join(chain, held.moves, format_)
        wanting = [end for end in readers if format_ in (end.stays, end.moves)]
        always = chain.kept and chain.present is format_ or any(end.stays is end.moves for end in wanting)
        if always:
            if held.vertex is not None:
                self._energy.bias[held.vertex] += staying - moving
            return
        leaving = sorted({end.vertex for end in wanting if end.vertex is not None and end.stays is format_})
        arriving = sorted({end.vertex for end in wanting if end.vertex is not None and end.moves is format_})
        if leaving:
            self._add_until_all_move(leaving, held, staying, moving)
        if arriving:
            self._add_if_any_moves(arriving, held, staying, moving)

    def _add_if_any_moves(self, readers: list[int], held: _Ends, staying: int, moving: int) -> None:
        """Add a price that is due once one of the readers moves."""
        need = self._all_high(readers)
        energy = self._energy
        if held.vertex is not None and moving > staying and self._bounds_follow_producers:
            energy.bias[need] -= staying
            energy.bias[held.vertex] -= moving - staying  # due even if no reader moves
            return
        energy.bias[need] -= moving
        if held.vertex is not None and moving < staying:
            energy.add_pairwise(need, held.vertex, staying - moving)

    def _add_until_all_move(self, readers: list[int], held: _Ends, staying: int, moving: int) -> None:
        """Add a price that is due until all of the readers have moved."""
        energy = self._energy
        if held.vertex is not None and moving < staying and self._bounds_follow_producers:
            energy.bias[held.vertex] += staying - moving  # due even if all readers move
            return
        need = self._any_high(readers)
        energy.bias[need] += staying
        if held.vertex is not None and moving > staying:
            energy.add_pairwise(held.vertex, need, moving - staying)

    def _add_following(self, chain: DefUseChain, low: Format, readers: Sequence[_Ends]) -> None:
        """Add a value that is low if all readers are, and else high, with a conversion for those that are low."""
        high = chain.present
        join = self._prices.join(chain, high, low)
        gain = self._prices.gain(chain.producer, uniform(low), uniform(high)) if chain.producer else 0
        moving = [(end, end.vertex) for end in readers if end.vertex is not None]
        to_low = sorted({vertex for end, vertex in moving if end.stays is not low and end.moves is low})
        to_high = sorted({vertex for end, vertex in moving if end.stays is low and end.moves is not low})
        fixed_low = any(end.stays is low and end.moves is low for end in readers)
        fixed_high = any(end.stays is not low and end.moves is not low for end in readers)
        energy = self._energy
        if to_low and to_high:
            # Treat it as always high, which it is if nothing moves.
            if not fixed_low:
                energy.bias[self._any_high(to_high)] += join
                energy.bias[self._all_high(to_low)] -= join
            return
        if fixed_high:
            if to_low and not fixed_low:
                energy.bias[self._all_high(to_low)] -= join
            elif to_high and not fixed_low:
                energy.bias[self._any_high(to_high)] += join
            return
        if to_low:
            some_high = self._any_high(to_low)
            energy.bias[some_high] += gain + (join if fixed_low else 0)
            if not fixed_low and len(to_low) > 1:
                energy.add_pairwise(self._all_high(to_low), some_high, join)
        elif to_high:
            some_moved = self._all_high(to_high)
            energy.bias[some_moved] -= gain + (join if fixed_low else 0)
            if not fixed_low and len(to_high) > 1:
                energy.add_pairwise(some_moved, self._any_high(to_high), join)

    def _all_high(self, vertices: list[int]) -> int:
        """Return a vertex that is high only if all of `vertices` are: it is low once one of them moves."""
        if len(vertices) == 1:
            return vertices[0]
        need = self._energy.add()
        for vertex in vertices:
            self._energy.add_pairwise(vertex, need, INF)
        return need

    def _any_high(self, vertices: list[int]) -> int:
        """Return a vertex that is high if any of `vertices` is: it is low once all of them have moved."""
        if len(vertices) == 1:
            return vertices[0]
        need = self._energy.add()
        for vertex in vertices:
            self._energy.add_pairwise(need, vertex, INF)
        return need
