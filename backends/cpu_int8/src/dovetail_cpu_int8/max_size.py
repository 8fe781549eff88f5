"""The option `--max-size` of `dovetail compile`: a size within which weights get 4 or 8 bits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.cli import options_of
from dovetail.errors import UsageError
from dovetail.plugin import Option, Policy, Proposal
from dovetail_onnx import saved_size

from dovetail_cpu_int8.backend import weights_alone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Plan
    from dovetail.plugin import CompileJob, Phase, Trial


OPTION = "max-size"
"""The option, and the name of its record in the request."""

BYTES = "bytes"
"""Key of the record: the size of what is written."""

RESERVED = "reserved"
"""Key of the record: bytes of the result that the estimate does not contain."""

RULE = "max-size"
"""The rule of remarks about formats within a size."""

RESULT = "result"
"""The fact of such a remark that is the estimated size of the result."""

_KEYWORD = "max_size"
_ROUNDS = 2  # of compiling again; the first knows exactly what is written besides the weights
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]i?)?B?", re.IGNORECASE)


class MaxSize(Option):
    """The option `--max-size SIZE`: with `cpu-int8:weights=int4`, bytes of the result: its weights and its graph."""

    commands = ("compile", "plan", "bisect")
    keywords = (_KEYWORD,)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--max-size`."""
        options_of(parser, "cpu-int8").add_argument(
            "--max-size",
            metavar="SIZE",
            help="bytes of the result, as 600MB: weights of cpu-int8:weights=int4 have 8 bits where it helps most",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword argument `max_size`."""
        return {} if args.max_size is None else {_KEYWORD: args.max_size}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the size in bytes.

        Raises:
            UsageError: It is no size.
        """
        given = keywords.get(_KEYWORD)
        return {} if given is None else {BYTES: _bytes(given)}

    def words(self, command: str, recorded: Mapping[str, Any]) -> Sequence[str]:
        """Return the size as command-line words."""
        return ("--max-size", str(recorded[BYTES])) if BYTES in recorded else ()

    def begin(self, job: CompileJob) -> None:
        """Check that some backend reads the size.

        Raises:
            UsageError: No backend chooses among formats of weights.
        """
        _check(job.ctx, job.keywords)

    def policies(self, job: CompileJob, phase: Phase) -> Iterable[Policy]:
        """Give weights less if the result is larger than allowed."""
        return [_Within(job)] if phase == "fit" and BYTES in job.request.options.get(OPTION, {}) else []

    def planned(self, plan: Plan, model: Model, ctx: Context, keywords: Mapping[str, Any]) -> None:
        """Check that some backend reads the size.

        Raises:
            UsageError: None does.
        """
        _check(ctx, keywords)


class _Within(Policy):
    """Proposes less for weights if the result is larger than allowed; at most twice.

    The strategy `weights-alone` reads the record, and estimates what is written besides the weights.
    """

    phase, name, compares = "fit", "max-size", False

    def __init__(self, job: CompileJob):
        self._job = job

    def propose(self, trials: Sequence[Trial]) -> Proposal | None:
        """Return a request with less for weights; None if the result fits."""
        compiled = trials[-1].result
        request = trials[-1].proposal.request or self._job.request
        record = request.options[OPTION]
        # A folder keeps weights outside of the file where its source does.
        size = saved_size(compiled.model, _is_external(self._job.original) or None)
        estimated = [one.facts[RESULT] for one in compiled.remarks if one.rule == RULE and RESULT in one.facts]
        if size <= record[BYTES] or not estimated or len(trials) > _ROUNDS:
            return None
        reserved = record.get(RESERVED, 0) + size - estimated[-1]
        changed = {**request.options, OPTION: {**record, RESERVED: reserved}}
        why = f"the result has {size:,} bytes, and {record[BYTES]:,} are allowed"
        return Proposal(why, request=replace(request, options=changed))


def _check(ctx: Context, keywords: Mapping[str, Any]) -> None:
    if keywords.get(_KEYWORD) is None:
        return
    if not any(map(weights_alone, ctx.backends)):
        raise UsageError(
            "--max-size needs a backend that stores weights in few bits",
            "request --backend cpu-int8:weights=int4, or leave it out",
        )


def _is_external(model: Model) -> bool:
    import onnx_ir as ir

    values = model.graph.initializers.values()
    return any(isinstance(value.const_value, ir.ExternalTensor) for value in values)


def _bytes(given: object) -> int:
    """Return the bytes of a size as text or number, or of a share of it: `("600MB", 0.25)` for a part of several.

    Raises:
        UsageError: It is no size.
    """
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], float) and 0 <= given[1] <= 1:
        return max(1, int(_bytes(given[0]) * given[1]))
    found = _SIZE.fullmatch(str(given).strip()) if not isinstance(given, bool) else None
    size = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    if size <= 0:
        raise UsageError(f"max_size={given!r} is no size", "write a number of bytes, or 600MB, 1.5GB, 512MiB")
    return size


MAX_SIZE = MaxSize()
