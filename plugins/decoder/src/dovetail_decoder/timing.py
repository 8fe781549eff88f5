"""Times of a folder in ONNX Runtime, separately for prefill and decoding, in a separate process.

python -m dovetail_decoder.timing FOLDER REQUEST.npz ANSWER.json
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.plugin import PythonProcess, TemporaryFolder, end_with_parent

from dovetail_decoder.measure import DECODED, PREFILL, arrays_of, prompts_of, save_arrays
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


class TimeUpError(DovetailError):
    """A process took longer than it might."""


def timed(folder: GeneratorFolder, prompt: Prompt, threads: int, streams: int, seconds: float | None = None) -> Times:
    """Time a folder in a fresh process.

    Args:
        folder: The folder.
        prompt: The prompt to read, repeated or cut to 100 tokens.
        threads: Threads of each session; 0 for ONNX Runtime's own choice.
        streams: Number of texts that are generated at the same time, as one batch.
        seconds: Time limit; no limit by default.

    Raises:
        DovetailError: It does not run, or takes longer than it may.
    """
    with TemporaryFolder("timing") as place:
        request, answer = place / "request.npz", place / "answer.json"
        save_arrays(request, {**arrays_of([prompt]), "threads": np.array(threads), "streams": np.array(streams)})
        with (place / "said").open("wb") as said:
            process = PythonProcess(
                "dovetail_decoder.timing", [str(folder.path), str(request), str(answer)], stdout=said, stderr=said
            )
            code = ended(process, seconds)
        if code or not answer.is_file():
            lines = (place / "said").read_text(errors="replace").strip().splitlines()
            raise DovetailError(lines[-1] if lines else f"the process ended with {code}", "look at each part alone")
        found = json.loads(answer.read_text())
        return Times(found["prefill"], found["token"])


def ended(process: PythonProcess, seconds: float | None) -> int:
    """Wait for a process, and return its code.

    Raises:
        TimeUpError: It takes longer than it may; it is ended.
    """
    from subprocess import TimeoutExpired

    try:
        return process.wait(seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()
        raise TimeUpError("the time is up", "give a larger --budget") from None


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


def main(folder: str, request: str, answer: str) -> int:
    """Time a folder, and write the result."""
    from dovetail_decoder.reading import chain_of, read_folder

    with np.load(request, allow_pickle=False) as archive:
        arrays = dict(archive)
    (prompt,) = prompts_of(arrays)
    try:
        chain = chain_of(read_folder(Path(folder)), threads=int(arrays["threads"]))
        chain.load()
        found = fastest([_turn(chain, prompt, int(arrays["streams"])) for _ in range(_TURNS)])
    except DovetailError as error:
        print(error.message, file=sys.stderr)
        return 1
    Path(answer).write_text(json.dumps(vars(found)))
    return 0


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(*sys.argv[1:]))
