"""How often placing and typing are repeated because something was refused: the rounds of the decide loop.

    python bench/rounds.py MODEL_OR_FOLDER... [--backend gpu-fp16 --backend cpu-bf16] [--engines] [--largest 200]

A round is one run of the pass `place`; without refusals there is one. Folders are searched for ONNX files; a file that
Dovetail does not open is counted apart. `--engines` also loads the regions, where what engines refuse takes rounds of
its own. Models with the same bytes are taken once.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import dovetail
from dovetail.errors import DovetailError
from dovetail.passes import Instrumentation
from measure import table


def models(paths: Sequence[Path], largest: int) -> Iterator[Path]:
    """Every different ONNX file of at most `largest` MiB."""
    seen = set()
    for path in paths:
        for file in sorted(path.rglob("*.onnx")) if path.is_dir() else [path]:
            if file.stat().st_size <= largest << 20:
                digest = hashlib.sha256(file.read_bytes()).digest()
                if digest not in seen:
                    seen.add(digest)
                    yield file


def rounds(model: Path, backend: str, engines: bool) -> int:
    """How often the nodes were placed."""
    placed = []

    def finished(result) -> None:
        placed.extend(step for step in result.passes if step.name == "place")

    watch = Instrumentation(finished=finished)
    dovetail.compile(model, [backend], try_engines=None if engines else False, verify=False, instrumentation=watch)
    return len(placed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--backend", action="append")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--largest", type=int, default=200, help="MiB")
    options = parser.parse_args()
    backends = options.backend or ["gpu-fp16", "cpu-bf16"]
    found: dict[str, Counter[int]] = {backend: Counter() for backend in backends}
    most: dict[str, tuple[int, str]] = dict.fromkeys(backends, (0, ""))
    refused = Counter()
    for model in models(options.paths, options.largest):
        for backend in backends:
            try:
                number = rounds(model, backend, options.engines)
            except DovetailError as error:
                refused[backend] += 1
                print(f"{model.name}: {error.message.splitlines()[0][:160]}")
                continue
            found[backend][number] += 1
            most[backend] = max(most[backend], (number, model.name))
    table([
        {
            "backend": backend,
            "models": sum(found[backend].values()),
            **{f"{n} round{'s' * (n > 1)}": found[backend][n] for n in range(1, 5)},
            "more": sum(number for n, number in found[backend].items() if n > 4),
            "most": "{} ({})".format(*most[backend]),
            "refused with an error": refused[backend],
        }
        for backend in backends
    ])  # fmt: skip


if __name__ == "__main__":
    main()
