"""The states of a language model: its parts run on prompts, and fill their caches themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail.text import printable
from dovetail_onnx.native_runtime import return_freed_memory
from dovetail_verify.metrics import UNKNOWN

from dovetail_decoder.caches import PartPort, Ports, check_caches, empty
from dovetail_decoder.folder import LOGITS, GeneratorFolder, Part

if TYPE_CHECKING:
    from dovetail_decoder.tokens import Prompt

Feeds = dict[str, np.ndarray]
STEPS = 7
"""Tokens of each prompt that are decoded one by one. With the prompt itself, these are 8 batches: data that is divided
in threes then has prompts and single tokens in every part."""


class Chain:
    """The parts of a folder as sessions of ONNX Runtime on the CPU, loaded when they first run.

    Args:
        folder: The folder.
        ports: The ports of each part, by name.
        threads: Threads of each session; 0 for ONNX Runtime's own choice.
    """

    def __init__(self, folder: GeneratorFolder, ports: Mapping[str, Ports], threads: int = 0):
        self.folder = folder
        self.ports = ports
        self._threads = threads
        self._sessions: dict[str, Any] = {}

    def run(self, part: Part, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run a part, and return its outputs by role.

        Raises:
            DovetailError: ONNX Runtime cannot load or run it.
        """
        session = self._session(part)
        try:
            results = session.run(None, feeds)
        except Exception as error:  # ONNX Runtime's own exceptions share no base class
            raise _refused(self.folder.file_of(part), "run", error) from None
        return {port.role: array for port, array in zip(self.ports[part.name].outputs, results, strict=True)}

    def load(self) -> None:
        """Load all parts that take part in the generation of tokens."""
        for part in self.folder.parts:
            if part.phase != "never":
                self._session(part)

    def close(self) -> None:
        """Release all sessions."""
        if self._sessions:
            self._sessions.clear()
            return_freed_memory()

    def _session(self, part: Part) -> Any:
        if part.name not in self._sessions:
            self._sessions[part.name] = open_session(self.folder.file_of(part), self._threads)
        return self._sessions[part.name]


def open_session(path: Path, threads: int = 0) -> Any:
    """Load a model in ONNX Runtime on the CPU.

    Args:
        path: Its file.
        threads: Threads of the session; 0 for ONNX Runtime's own choice.

    Raises:
        DovetailError: It is not installed, or refuses the model.
    """
    from dovetail_onnx.native_runtime import new_session, onnx_runtime

    try:
        options = onnx_runtime().SessionOptions()
    except ImportError:
        raise DovetailError(
            "onnxruntime is not installed, so the model cannot fill its caches",
            "pip install 'dovetail-decoder[onnxruntime]', or compile without --data",
        ) from None
    options.log_severity_level = 4  # errors are raised
    options.intra_op_num_threads = threads
    # Exporters declare one name for extents that differ, and buffers are reused by declared extents.
    options.enable_mem_reuse = False
    try:
        return new_session(str(path), options, ["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own exceptions share no base class
        raise _refused(path, "load", error) from None


def _refused(path: Path, what: str, error: Exception) -> DovetailError:
    text = printable(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
    return DovetailError(f"{path}: ONNX Runtime cannot {what} it: {text}", "look at this model alone: dovetail run")


class Generation:
    """One text that is being generated: the caches of all parts after the tokens so far.

    Args:
        chain: The parts.
        prompt: The prompt, for other inputs of the model, such as an image.
        seen: Called with each part and its inputs before it runs.
        streams: Number of texts that are generated at the same time, as one batch; all of them are the same.

    Attributes:
        ids: The tokens that the decoder begins with: the prompt, unless an encoder reads it.
        length: Number of tokens so far.
    """

    def __init__(
        self,
        chain: Chain,
        prompt: Prompt,
        seen: Callable[[Part, Feeds], None] | None = None,
        streams: int = 1,
    ):
        self._chain, self._seen, self._streams = chain, seen, streams
        self._where = prompt.where
        self._values = {name: _repeated(array, streams) for name, array in prompt.others.items()}
        self.ids = prompt.ids
        self.length = 0
        produced = {port.role for one in chain.ports.values() for port in one.outputs}
        for part in chain.folder.parts:
            check_caches(chain.folder, part, chain.ports[part.name], frozenset(produced))
        for part in self._parts("once"):
            if any(port.role == "input_ids" for port in chain.ports[part.name].inputs):
                self._run(part, _repeated(prompt.ids.reshape(1, -1), streams))
                self._values["encoder_attention_mask"] = np.ones((streams, len(prompt.ids)), np.int64)
                self.ids = np.array([chain.folder.start], np.int64)
            elif all(self._has(port) for port in chain.ports[part.name].inputs):
                self._run(part, np.zeros((1, 0), np.int64))
            elif self._needed(part):
                lacking = next(port for port in chain.ports[part.name].inputs if not self._has(port))
                raise DovetailError(
                    f"{prompt.where}: the part '{part.name}' needs '{lacking.name}' {list(lacking.shape or ())}",
                    f"give a .npz with input_ids and {lacking.name}, one row for each prompt",
                )

    def feed(self, ids: np.ndarray) -> np.ndarray:
        """Feed further tokens, of one axis, and return the scores of the token that follows each: [tokens, vocabulary].

        Raises:
            DovetailError: A part cannot run, or none gives scores.
        """
        tokens = _repeated(np.asarray(ids, np.int64).reshape(1, -1), self._streams)
        first = self.length == 0
        logits = None
        for part in self._parts("always", "prompt" if first else "step"):
            results = self._run(part, tokens)
            logits = results.get(LOGITS, logits)
        if logits is None:
            raise DovetailError(
                f"{self._chain.folder.path}: no part has an output '{LOGITS}'", "name it in 'outputs' of the decoder"
            )
        self.length += tokens.shape[1]
        scores: np.ndarray = logits.reshape(-1, logits.shape[-1])
        return scores[: len(scores) // self._streams]

    def _parts(self, *phases: str) -> list[Part]:
        return [part for part in self._chain.folder.parts if part.phase in phases]

    def _run(self, part: Part, tokens: np.ndarray) -> dict[str, np.ndarray]:
        ports = self._chain.ports[part.name]
        feeds = {port.name: self._input(part, port, tokens) for port in ports.inputs}
        if self._seen is not None:
            self._seen(part, feeds)
        results = self._chain.run(part, feeds)
        for role, array in results.items():
            known = self._values.get(role)
            # Later calls of a merged decoder return nothing in place of what the encoder gave.
            if known is None or array.size or not known.size:
                self._values[role] = array
        return results

    def _input(self, part: Part, port: PartPort, tokens: np.ndarray) -> np.ndarray:
        found = self._values.get(port.role, self._values.get(port.name))
        if found is None and port.is_cache:
            found = _repeated(empty(port, self._chain.folder, part), self._streams)
        if found is None:
            found = _standard(port, tokens, self.length)
        if found is None:
            raise DovetailError(
                f"{self._where}: the part '{part.name}' needs '{port.name}' {list(port.shape or ())}",
                f"give a .npz with input_ids and {port.name}, one row for each prompt",
            )
        return found.astype(port.dtype, copy=False)

    def _has(self, port: PartPort) -> bool:
        return port.role in self._values or port.name in self._values

    def _needed(self, part: Part) -> bool:
        """Return whether another part cannot run without what `part` computes; images may be left out."""
        given = {port.role for port in self._chain.ports[part.name].outputs}
        readers = [p for other in self._parts("always", "prompt", "step") for p in self._chain.ports[other.name].inputs]
        return any(port.role in given and _standard(port, np.zeros((1, 1), np.int64), 0) is None for port in readers)


def _standard(port: PartPort, tokens: np.ndarray, past: int) -> np.ndarray | None:
    """Return the input of a role that every decoder has, for further tokens of one row; None for another role."""
    streams, count = tokens.shape
    rank = len(port.shape) if port.shape is not None else 2
    positions = np.arange(past, past + count)
    scalars = {
        "past.sequence_length": past, "total_sequence_length": past + count, "current_sequence_length": past + count,
        "num_logits_to_keep": 0, "logits_to_keep": 0, "use_cache_branch": past > 0, "beam_width": 1,
    }  # fmt: skip
    role = port.role
    if role in ("input_ids", "decoder_input_ids"):
        return tokens
    if role in scalars:
        return np.full([1] * rank, scalars[role])
    if role in ("attention_mask", "decoder_attention_mask") and rank == 2:
        return np.ones((streams, past + count), np.int64)
    if role in ("position_ids", "cache_position"):
        rows = _fixed(port, rank - 1)
        if rows and role == "position_ids" and rank == 2:
            rows = [streams]
        return np.broadcast_to(positions, (*rows, count)).copy()
    if role == "token_type_ids":
        return np.zeros((streams, count), np.int64)
    if role.endswith("_features") and port.shape is not None and not isinstance(port.shape[0], int):
        # No image: an embedding part takes the features of none.
        return np.zeros([0, *(extent if isinstance(extent, int) else 1 for extent in port.shape[1:])])
    return None


def _repeated(array: np.ndarray, streams: int) -> np.ndarray:
    """Return an array with a first axis of one for every stream."""
    return array if streams == 1 or not array.ndim else np.repeat(array, streams, axis=0)


def _fixed(port: PartPort, axes: int) -> list[int]:
    """Return the first extents of a port, open ones as 1."""
    return [extent if isinstance(extent, int) else 1 for extent in (port.shape or ())[:axes]] or [1] * axes


def batches(
    chain: Chain, part: Part, prompts: Sequence[Prompt], steps: int = STEPS, recordings: list[int] | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the inputs that a part has while the model reads prompts and decodes, as batches for verification.

    All but the last `steps` tokens of a prompt are read at once, the others one by one, with the caches of all before.
    A prompt that is too short for that continues with the tokens that the model gives the highest scores. A part with
    the scores of tokens also has labels: the next token of the prompt where there is one. Calls without a sample, such
    as those that embed no image, are left out.

    Args:
        chain: The parts.
        part: The part.
        prompts: The prompts.
        steps: Tokens to decode one by one.
        recordings: Gets the number of the prompt of each batch.
    """
    scores = chain.ports[part.name].output(LOGITS)
    for number, prompt in enumerate(prompts):
        caught: list[Feeds] = []

        def seen(one: Part, feeds: Feeds, caught: list[Feeds] = caught) -> None:
            if one.name == part.name:
                caught.append(dict(feeds))

        generation = Generation(chain, prompt, seen)
        for following in _answers(generation, steps, chain.folder.context):
            for feeds in filter(_has_samples, caught):
                if recordings is not None:
                    recordings.append(number)
                yield {**feeds, **({f"labels:{scores.name}": following} if scores is not None else {})}
            caught.clear()
    chain.close()  # what was yielded is kept by its reader, and the models need not be in memory any more


def _has_samples(feeds: Feeds) -> bool:
    return all(not array.ndim or len(array) for array in feeds.values())


def _answers(generation: Generation, steps: int, context: int | None) -> Iterator[np.ndarray]:
    """Run a prompt and further tokens; yield, for each call, the token that follows each of its tokens."""
    ids = generation.ids
    at_once = len(ids) - steps if len(ids) >= 2 * steps else len(ids)
    known = np.append(ids[1:], UNKNOWN)
    logits = generation.feed(ids[:at_once])
    yield known[:at_once]
    for step in range(at_once, at_once + steps):
        if context is not None and step >= context:
            return
        token = ids[step : step + 1] if step < len(ids) else logits[-1:].argmax(axis=-1)
        logits = generation.feed(token)
        yield known[step : step + 1] if step < len(ids) else np.array([UNKNOWN])
