"""Runs of a whole result in one session that checks its inputs itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of, name_of
from dovetail.planning import HOST
from dovetail_transforms.canonicalize.input_ranges import declared_range

from dovetail_runtime.feeds import declared
from dovetail_runtime.serialize import value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_runtime.engines import GuardedSession
    from dovetail_runtime.region_runner import RegionRunner
    from dovetail_runtime.sessions import SelfChecking


class DirectRun:
    """Runs a whole result in one session.

    Small models take less time than the executor's own checks, so these are only made for calls that fail here.

    Args:
        session: Returns the session, or None if its engine was replaced by one that checks less.
        graph: The graph; its inputs are tensors of numbers.
        is_judge: Whether the shapes that the session computes are right by definition.
    """

    def __init__(self, session: Callable[[], SelfChecking | None], graph: ir.Graph, is_judge: bool):
        import numpy as np

        self._array = np.ndarray
        self._session = session
        fed = [value for value in graph.inputs if not value.is_initializer()]
        self._dtypes = {name_of(value): dtype_of(value).numpy() for value in fed}
        self._ranges = {name_of(value): found for value in fed if (found := declared_range(value)) is not None}
        self._names = list(map(name_of, graph.outputs))
        self._outputs = [] if is_judge else [declared(value) for value in graph.outputs]
        self._is_doubted = False

    def run(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray] | None:
        """Compute all outputs by name; None if an input has to be converted, or anything is not as declared."""
        session = self._session()
        if session is None or self._is_doubted or len(inputs) != len(self._dtypes):
            return None
        given: dict[str, np.ndarray] = {}
        try:
            for name, dtype in self._dtypes.items():
                array = inputs[name]
                # Another byte order is another dtype, which a session would misread.
                if type(array) is not self._array or array.dtype != dtype:
                    return None
                given[name] = array
            if not all(promised.holds(given[name]) for name, promised in self._ranges.items()):
                return None
            results = session.run(given)
            if all(output.has_shape(results[output.name].shape) for output in self._outputs):
                return {name: results[name] for name in self._names}
            self._is_doubted = True  # the executor's way finds out whether the session or the model is wrong
        except Exception:  # the executor's way finds out why, and says it
            return None
        return None


def direct_run(runners: Sequence[RegionRunner], joint: GuardedSession | None, graph: ir.Graph) -> DirectRun | None:
    """Return a runner of a whole result in one session; None if it needs several sessions, or more checks.

    Args:
        runners: The runners of its regions.
        joint: The session that runs all regions together, if there is one.
        graph: Its graph.
    """
    fed = [value for value in graph.inputs if not value.is_initializer()]
    if not all(value_type(value) not in ("", "string") for value in (*fed, *graph.outputs)):
        return None
    if joint is not None:
        return DirectRun(lambda: joint.self_checking, graph, is_judge=False)
    if len(runners) != 1 or runners[0].self_checking is None:
        return None
    (runner,) = runners
    if sorted(runner.outputs) != sorted(map(name_of, graph.outputs)) or not {*runner.inputs} <= set(map(name_of, fed)):
        return None
    return DirectRun(lambda: runner.self_checking, graph, runner.backend == HOST)
