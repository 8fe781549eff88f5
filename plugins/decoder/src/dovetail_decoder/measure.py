"""Measurement of a folder in ONNX Runtime, in a separate process: speed, memory, and answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.plugin import Tool

from dovetail_decoder.states import Chain, Generation
from dovetail_decoder.tokens import Prompt

if TYPE_CHECKING:
    from dovetail_decoder.folder import GeneratorFolder

PREFILL = 100
"""Tokens whose reading is timed."""

DECODED = 24
"""Tokens that are generated for each prompt, greedily."""

_PROMPTS = 8  # of which answers are compared
_TURNS = 3


@dataclass(frozen=True)
class Measurement:
    """The measurements of one folder.

    Attributes:
        prefill_ms: Milliseconds to read 100 tokens.
        tokens_per_second: Tokens that are decoded in a second, one stream.
        memory: Peak memory of the process in bytes; None if the system does not report it.
        answers: The tokens that it gives the highest scores, for each prompt.
        scores: For each prompt, the scores after the prompt and each of the tokens that were to follow it.
        surprise: Mean of -log p over the tokens of the prompts but their first; None where a decoder does not read them
            or gives scores of the last one alone.
    """

    prefill_ms: float
    tokens_per_second: float
    memory: int | None
    answers: Sequence[np.ndarray]
    scores: Sequence[np.ndarray]
    surprise: float | None = None


def measured(
    folder: GeneratorFolder, prompts: Sequence[Prompt], following: Sequence[np.ndarray] | None = None
) -> Measurement:
    """Measure a folder in a separate process.

    Args:
        folder: The folder.
        prompts: What to answer; the first ones count.
        following: Tokens to take after each prompt for `scores`; by default its own answers.

    Raises:
        DovetailError: ONNX Runtime cannot load or run it.
    """
    given = [prompt.as_dict() for prompt in prompts[:_PROMPTS]]
    wanted = None if following is None else list(following[:_PROMPTS])
    with Tool.start("dovetail_decoder.measure", title="the measurement", hint="look at each part alone") as tool:
        return Measurement(**tool.ask("measure", folder=str(folder.path), prompts=given, following=wanted))


def answers_of(chain: Chain, prompt: Prompt, following: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return a folder's own answer to a prompt, and its scores for the tokens that follow the prompt.

    Both are as long as the context allows.
    """
    context = chain.folder.context
    generation = Generation(chain, prompt)
    logits = generation.feed(generation.ids)[-1]
    room = DECODED if context is None else max(min(DECODED, context - len(generation.ids)), 0)
    answer, scores = [int(logits.argmax())], [logits]
    for _ in range(room):
        logits = generation.feed(np.array([answer[-1]]))[-1]
        answer.append(int(logits.argmax()))
        scores.append(logits)
    if following is not None:
        generation = Generation(chain, prompt)
        scores = [generation.feed(generation.ids)[-1]]
        scores += [generation.feed(np.array([token]))[-1] for token in following[: len(answer) - 1]]
    return np.array(answer), np.array(scores, np.float32)


def surprise_of(chain: Chain, prompts: Sequence[Prompt]) -> float | None:
    """Return the mean of -log p over the tokens of prompts but their first; see `Measurement`."""
    found: list[np.ndarray] = []
    for prompt in prompts:
        generation = Generation(chain, prompt)
        if generation.ids is not prompt.ids or len(prompt.ids) < 2:
            continue
        scores = generation.feed(prompt.ids)
        if len(scores) != len(prompt.ids):
            return None
        rows = scores[:-1].astype(np.float64)
        rows -= rows.max(axis=-1, keepdims=True)
        labels = np.take_along_axis(rows, prompt.ids[1:, None], axis=-1)[:, 0]
        found.append(np.log(np.exp(rows).sum(axis=-1)) - labels)
    return float(np.concatenate(found).mean()) if found else None


def _timed(chain: Chain, prompt: Prompt) -> tuple[float, float]:
    """Return the milliseconds of 100 tokens at once, and the tokens per second after them."""
    context = chain.folder.context or PREFILL + DECODED
    count = max(min(PREFILL, context - DECODED), 1)
    repeated = Prompt(np.resize(prompt.ids, count), prompt.where, prompt.others)
    best, fastest = float("inf"), 0.0
    for _ in range(_TURNS):
        begin = time.perf_counter()
        generation = Generation(chain, repeated)
        if generation.ids is repeated.ids:  # otherwise the encoder is what reads the prompt
            begin = time.perf_counter()
        logits = generation.feed(generation.ids)
        best = min(best, (time.perf_counter() - begin) * 1e3 * PREFILL / count)
        steps = max(min(DECODED, context - len(generation.ids)), 1)
        begin = time.perf_counter()
        for _ in range(steps):
            logits = generation.feed(logits[-1:].argmax(axis=-1))
        fastest = max(fastest, steps / (time.perf_counter() - begin))
    return best, fastest


def _memory() -> int | None:
    """Return the peak memory of this process in bytes; None if the system does not report it."""
    try:
        # Not `getrusage`, whose peak begins with that of the process that started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # another system than Linux
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def measure(
    folder: str, prompts: Sequence[Mapping[str, Any]], following: Sequence[np.ndarray] | None
) -> dict[str, Any]:
    """Measure a folder in this process: the function of the worker."""
    from dovetail_decoder.reading import chain_of, read_folder

    given = [Prompt(**prompt) for prompt in prompts]
    chain = chain_of(read_folder(Path(folder)))
    chain.load()
    prefill, speed = _timed(chain, given[0])
    found: dict[str, Any] = {"prefill_ms": prefill, "tokens_per_second": speed, "memory": _memory()}
    found["surprise"] = surprise_of(chain, given)
    wanted = [None] * len(given) if following is None else following
    pairs = [answers_of(chain, prompt, ids) for prompt, ids in zip(given, wanted, strict=True)]
    return {**found, "answers": [answer for answer, _ in pairs], "scores": [scores for _, scores in pairs]}
