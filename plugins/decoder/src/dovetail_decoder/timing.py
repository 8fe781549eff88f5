"""Times of a folder in ONNX Runtime, separately for prefill and decoding, in a separate process."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.plugin import Tool

from dovetail_decoder.measure import DECODED, PREFILL
from dovetail_decoder.states import Chain, Generation
from dovetail_decoder.tokens import Prompt

if TYPE_CHECKING:
    from dovetail_decoder.folder import GeneratorFolder

_TURNS = 2  # in one process, of which the faster counts


@dataclass(frozen=True)
class Times:
    """Seconds of one folder.

    Attributes:
        prefill: To read 100 tokens, by all streams together.
        token: For one token that is decoded after them, by all streams together, divided by their number.
    """

    prefill: float
    token: float


def timed(folder: GeneratorFolder, prompt: Prompt, threads: int, streams: int, seconds: float = math.inf) -> Times:
    """Time a folder in a fresh process.

    Args:
        folder: The folder.
        prompt: The prompt to read, repeated or cut to 100 tokens.
        threads: Threads of each session; 0 for ONNX Runtime's own choice.
        streams: Number of texts that are generated at the same time, as one batch.
        seconds: Time limit.

    Raises:
        DovetailError: It does not run.
        ToolEndedError: It takes longer than it may.
    """
    with Tool.start("dovetail_decoder.timing", title="its process", hint="look at each part alone") as tool:
        return Times(
            **tool.ask(
                "time_folder", seconds, folder=str(folder.path), prompt=prompt.as_dict(), threads=threads,
                streams=streams,
            )
        )  # fmt: skip


def _turn(chain: Chain, prompt: Prompt, streams: int) -> Times:
    context = chain.folder.context or PREFILL + DECODED
    count = max(min(PREFILL, context - DECODED), 1)
    generation = Generation(chain, Prompt(np.resize(prompt.ids, count), prompt.where, prompt.others), streams=streams)
    begin = time.perf_counter()
    scores = generation.feed(generation.ids)
    prefill = (time.perf_counter() - begin) * PREFILL / count
    steps = max(min(DECODED, context - len(generation.ids)), 1)
    begin = time.perf_counter()
    for _ in range(steps):
        scores = generation.feed(scores[-1:].argmax(axis=-1))
    return Times(prefill, (time.perf_counter() - begin) / steps / streams)


def fastest(turns: Sequence[Times]) -> Times:
    """Return the smaller of both times, because interference only adds time."""
    return Times(min(one.prefill for one in turns), min(one.token for one in turns))


def time_folder(folder: str, prompt: Mapping[str, Any], threads: int, streams: int) -> dict[str, float]:
    """Time a folder in this process: the function of the worker."""
    from dovetail_decoder.reading import chain_of, read_folder

    chain = chain_of(read_folder(Path(folder)), threads=threads)
    chain.load()
    return vars(fastest([_turn(chain, Prompt(**prompt), streams) for _ in range(_TURNS)]))
