"""What fusing written-out norms and attention saves on ONNX Runtime's CPU provider, for decoders of any exporter.

    python bench/fused.py DECODER.onnx... [--heads 4] [--size 64]

Each decoder has `input_ids`, `attention_mask` and caches of 4 axes. It is timed as written and fused, in alternating
turns of one process with one thread: CPU milliseconds of a prompt of 128 tokens, and of one token behind 128 and 1024.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path

import dovetail
import numpy as np
import onnxruntime
from dovetail.passes import Pipeline
from measure import table

FUSIONS = "fuse-layernorm fuse-rmsnorm fuse-grouped-attention"
PROMPT, BEHIND, TURNS, TOKENS = 128, (128, 1024), 6, 10


def written(source: Path, place: Path, fused: bool) -> Path:
    """Write the decoder as it is, or fused."""
    model, plugins = dovetail.open(source), dovetail.load_plugins()
    steps = (
        f'normalize{{opset=23}},fold-constants,remove-identity,fuse{{only="{FUSIONS}"}},dead-code'
        if fused
        else "normalize"
    )
    Pipeline.parse(steps, plugins.registry).run(model)
    model.save(place / "floats.onnx", external=True)
    return place / "floats.onnx"


class Decoder:
    """A decoder in ONNX Runtime, with caches of random numbers."""

    def __init__(self, path: Path, heads: int, size: int):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self._session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self._inputs, self._cache = [one.name for one in self._session.get_inputs()], (heads, size)

    def cpu_ms(self, tokens: int, past: int, times: int) -> float:
        """Return the CPU milliseconds of a run."""
        rng, total = np.random.default_rng(0), past + tokens
        known = {
            "input_ids": rng.integers(3, 500, (1, tokens)), "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
        }  # fmt: skip
        heads, size = self._cache
        cache = rng.standard_normal((1, heads, past, size)).astype(np.float32)
        feeds = {name: cache if re.match("past", name) else known[name] for name in self._inputs}
        self._session.run(None, feeds)
        begin = time.process_time()
        for _ in range(times):
            self._session.run(None, feeds)
        return 1e3 * (time.process_time() - begin) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("decoders", type=Path, nargs="+")
    parser.add_argument("--heads", type=int, default=4, help="heads of keys")
    parser.add_argument("--size", type=int, default=64, help="elements of a head")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for number, source in enumerate(options.decoders):
            made = {}
            for name in ("as written", "fused"):
                place = Path(work) / f"{number} {name}"
                place.mkdir()
                made[name] = Decoder(written(source, place, name == "fused"), options.heads, options.size)
            runs = [(PROMPT, 0, 2), *((1, past, TOKENS) for past in BEHIND)]
            best = {name: [float("inf")] * len(runs) for name in made}
            for turn in range(TURNS):
                for name in list(made) if turn % 2 else list(reversed(made)):
                    best[name] = [min(old, made[name].cpu_ms(*run)) for old, run in zip(best[name], runs, strict=True)]
            for name, found in best.items():
                columns = ("prompt of 128", "token behind 128", "token behind 1024")
                figures = {column: f"{ms:.1f}" for column, ms in zip(columns, found, strict=True)}
                rows.append({"decoder": str(source), "": name, **figures})
    table(rows)


if __name__ == "__main__":
    main()
