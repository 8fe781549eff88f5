"""Comparison of a compiled folder with its source, as a generator runs both: a table, and goals over the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail_decoder.measure import measured
from dovetail_decoder.saving import size_of

if TYPE_CHECKING:
    from dovetail_decoder.caches import Ports
    from dovetail_decoder.folder import GeneratorFolder
    from dovetail_decoder.measure import Measurement
    from dovetail_decoder.tokens import Prompt

_SEED, _RANDOM = 0, 16  # tokens of a prompt where there is no data


@dataclass(frozen=True)
class Comparison:
    """Source and result in figures.

    Attributes:
        source: Measurement of the source.
        result: Measurement of the result.
        sizes: Bytes of the models of both.
        kl: Mean divergence of the scores of the next token, each with its own caches, after the same tokens; in nats.
        agreement: Share of the tokens of the source's greedy answers that the result gives at the same place.
        top1: Share of the next tokens that are the same after the same tokens.
        tokens: Number of tokens that were compared.
        judged: Whether there were prompts; random tokens do not measure accuracy.
    """

    source: Measurement
    result: Measurement
    sizes: tuple[int, int]
    kl: float
    agreement: float
    top1: float
    tokens: int
    judged: bool

    @property
    def rise(self) -> float | None:
        """The relative increase of the prompts' perplexity over the source's; None if unknown."""
        if self.source.surprise is None or self.result.surprise is None:
            return None
        return float(np.expm1(self.result.surprise - self.source.surprise))

    def rows(self) -> list[dict[str, str]]:
        """Return the table, a row for each folder."""
        return [
            self._row("source", self.source, self.sizes[0], ("", "")),
            self._row("result", self.result, self.sizes[1], (f"{self.kl:.3g}", f"{100 * self.agreement:.1f} %")),
        ]

    def _row(self, name: str, one: Measurement, size: int, accuracy: tuple[str, str]) -> dict[str, str]:
        row = {
            "model": name,
            "prefill ms per 100 tokens": f"{one.prefill_ms:.3g}",
            "tokens per second": f"{one.tokens_per_second:.4g}",
            "memory MB": f"{one.memory / 1e6:.4g}" if one.memory is not None else "",
            "size MB": f"{size / 1e6:.3g}",
        }
        return {**row, "KL": accuracy[0], "same tokens": accuracy[1]} if self.judged else row

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        numbers = {
            name: {
                "prefill_ms_per_100_tokens": one.prefill_ms, "tokens_per_second": one.tokens_per_second,
                "memory": one.memory, "size": size,
            }
            for name, one, size in (("source", self.source, self.sizes[0]), ("result", self.result, self.sizes[1]))
        }  # fmt: skip
        accuracy = {"kl": self.kl, "same_tokens": self.agreement, "top1": self.top1, "tokens": self.tokens}
        return {**numbers, **(accuracy if self.judged else {})}

    def missed(self, goals: Mapping[str, Any]) -> list[str]:
        """Return the goals over the next token that the whole misses, as sentences."""
        if not self.judged:
            return []
        return [f"the whole model has {one}" for one in missed_goals(goals, self.kl, self.top1, self.rise)]


def missed_goals(goals: Mapping[str, Any], kl: float, top1: float, rise: float | None) -> list[str]:
    """Return the goals over the next token that figures miss, as what a result has.

    Args:
        goals: The goals by name.
        kl, top1, rise: See `Comparison`.
    """
    found = []
    if (most := goals.get("max_kl")) is not None and kl > most:
        found.append(f"KL {kl:.3g} nats per token, --max-kl {most:g} is asked for")
    if (least := goals.get("min_top1")) is not None and top1 < least:
        found.append(f"the same next token in {100 * top1:.2f} %, --min-top1 {least:g} is asked for")
    if (most := goals.get("max_perplexity_rise")) is not None and (rise is None or rise > most):
        what = "no perplexity, because it gives no scores of the prompt's own tokens"
        what = what if rise is None else f"a perplexity that is {100 * rise:.3g} % higher"
        found.append(f"{what}, --max-perplexity-rise {100 * most:g}% is asked for")
    return found


def compared(
    source: GeneratorFolder, result: GeneratorFolder, prompts: Sequence[Prompt], before: Measurement, judged: bool
) -> Comparison:
    """Run the result on the prompts that the source was run on.

    Args:
        source: The source.
        result: The result.
        prompts: The prompts.
        before: Measurement of the source.
        judged: Whether the prompts were given, not random tokens.

    Raises:
        DovetailError: ONNX Runtime cannot load or run the result.
    """
    after = measured(result, prompts, before.answers)
    divergences, same, tops, count = [], 0, 0, 0
    for number, answer in enumerate(before.answers):
        divergences.append(_divergence(before.scores[number], after.scores[number]))
        same += int((answer == after.answers[number]).sum())
        tops += int((before.scores[number].argmax(axis=-1) == after.scores[number].argmax(axis=-1)).sum())
        count += len(answer)
    kl = float(np.concatenate(divergences).mean())
    sizes = size_of(source), size_of(result)
    return Comparison(before, after, sizes, kl, same / count, tops / count, count, judged)


def _divergence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return KL(softmax(a) || softmax(b)) of every row."""
    logs = []
    for scores in (a.astype(np.float64), b.astype(np.float64)):
        shifted = scores - scores.max(axis=-1, keepdims=True)
        logs.append(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
    return np.maximum((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1), 0.0)


def random_prompt(folder: GeneratorFolder, ports: Mapping[str, Ports]) -> Prompt:
    """Return a prompt of random tokens, with random sounds or images where a part needs some, in place of data."""
    from dovetail_decoder.tokens import Prompt

    numbers = np.random.default_rng(_SEED)
    count = min(_RANDOM, folder.context or _RANDOM)
    others = {
        port.name: numbers.standard_normal([1, *map(int, port.shape[1:])]).astype(port.dtype)
        for part in folder.parts
        if part.phase == "once"
        for port in ports[part.name].inputs
        if port.dtype.kind == "f" and port.shape and all(isinstance(extent, int) for extent in port.shape[1:])
    }
    return Prompt(numbers.integers(0, folder.vocabulary or 2, count), "random tokens", others)
