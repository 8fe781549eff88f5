"""A whole application with its nets exchanged: does it still read the same text, and how fast?

    python bench/ocr.py --wheels FOLDER [--pages 12] [--style mixed clean] [--min-snr 30] [--float16] [--repeat 3]

The application is rapidocr-onnxruntime: a detector finds lines, a classifier turns them, a recognizer reads them. Its
own code runs; only the three sessions are exchanged. Pages of ten lines are rendered with seeds: `mixed` in six fonts,
small and large, gray on gray; `clean` in two fonts of 24 pixels or more, black on white. A line is right if the line at
its place has the same text as with ONNX Runtime in float32; boxes are compared by intersection over union. Times are
those of all pages: of the three nets, and of the whole application; candidates take turns on every page, and the least
of the repetitions counts. With `--min-snr`, results are compiled to that goal with the inputs that the nets get on
other pages.

Needs the packages of the application: opencv-python-headless, pyclipper, shapely, six, pyyaml, pillow.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import table
from trained_nets import candidates
from trained_nets.pictures import CLEAN, MIXED, page
from trained_nets.vision import RAPIDOCR
from trained_nets.wheels import Wheels

MODELS = {
    "detector": "ch_PP-OCRv4_det_infer.onnx",
    "classifier": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "recognizer": "ch_PP-OCRv4_rec_infer.onnx",
}
STYLES = {"mixed": MIXED, "clean": CLEAN}
FLOAT32 = "ONNX Runtime float32"
Session = Callable[[np.ndarray], list[np.ndarray]]
Line = tuple[np.ndarray, str]


class Application:
    """The application with sessions that can be exchanged, and a watch on them.

    Args:
        wheels: Where its wheel is.

    Attributes:
        seconds: What the sessions took since it was last set to zero.
        seen: Where a list, the inputs of each net are kept in it.
    """

    def __init__(self, wheels: Wheels):
        sys.path.insert(0, str(wheels.root(RAPIDOCR)))
        self._read = importlib.import_module("rapidocr_onnxruntime").RapidOCR()
        self._parts = {
            "detector": (self._read.text_det, "infer"),
            "classifier": (self._read.text_cls, "infer"),
            "recognizer": (self._read.text_rec, "session"),
        }
        self.own: dict[str, Session] = {net: getattr(*place) for net, place in self._parts.items()}
        self.seconds = 0.0
        self.seen: dict[str, list[np.ndarray]] | None = None

    def lines(self, picture: np.ndarray, sessions: dict[str, Session]) -> list[Line]:
        """The lines of a page, as boxes and texts."""
        for net, place in self._parts.items():
            setattr(*place, self._watched(net, sessions[net]))
        found, _ = self._read(picture)
        return [(np.asarray(box, np.float64), text) for box, text, *_ in found or ()]

    def _watched(self, net: str, session: Session) -> Session:
        def run(array: np.ndarray) -> list[np.ndarray]:
            if self.seen is not None:
                self.seen.setdefault(net, []).append(array)
            start = time.perf_counter()
            results = session(array)
            self.seconds += time.perf_counter() - start
            return results

        return run


def exchanged(make: Callable[[Path], candidates.Candidate], models: dict[str, Path]) -> dict[str, Session]:
    """Sessions made by `make`."""
    sessions = {}
    for net, path in models.items():
        run = make(path).run
        sessions[net] = lambda array, run=run: list(run({"x": array}).values())
    return sessions


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of the upright rectangles around two boxes."""
    low, high = np.maximum(a.min(0), b.min(0)), np.minimum(a.max(0), b.max(0))
    shared = np.prod(np.maximum(high - low, 0))
    return float(shared / max(np.prod(np.ptp(a, 0)) + np.prod(np.ptp(b, 0)) - shared, 1e-9))


def compared(expected: list[Line], found: list[Line]) -> list[tuple[bool, float]]:
    """For every line of float32, whether the one at its place has its text, and how well the boxes overlap."""
    result = []
    for box, text in expected:
        best = max(found, key=lambda line: overlap(box, line[0]), default=None)
        share = overlap(box, best[0]) if best else 0.0
        result.append((bool(best) and share > 0.3 and best[1] == text, share))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--pages", type=int, default=12)
    parser.add_argument("--style", nargs="+", default=list(STYLES), choices=STYLES)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--min-snr", type=float, nargs="*", default=[], metavar="DB", help="goals to compile to, too")
    parser.add_argument("--float16", action="store_true", help="gpu-fp16, too, computed here with rounded results")
    parser.add_argument("--high", action="append", default=[], metavar="NET=SELECTOR", help="try: cpu-bf16 with these")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="print the lines that differ")
    options = parser.parse_args()
    wheels = Wheels(options.wheels.absolute())
    models = {net: wheels.file(RAPIDOCR, f"rapidocr_onnxruntime/models/{name}") for net, name in MODELS.items()}
    application = Application(wheels)

    def pages(style: str, first: int, number: int) -> list[np.ndarray]:
        rendered = (page(wheels, first + index, style=STYLES[style])[0] for index in range(number))
        return [np.asarray(picture)[:, :, ::-1] for picture in rendered]

    others = [picture for style in options.style for picture in pages(style, options.seed + 500, 3)]

    sessions = {
        FLOAT32: application.own,
        "OpenVINO bfloat16 mode": exchanged(lambda path: candidates.openvino_mode(path, ()), models),
        "cpu-bf16": exchanged(lambda path: candidates.ours(path, "cpu-bf16"), models),
    }
    data = _inputs(application, others)
    if options.high:
        chosen: dict[str, list[str]] = {}
        for pair in options.high:
            chosen.setdefault(pair.partition("=")[0], []).append(pair.partition("=")[2])
        of = {path: net for net, path in models.items()}
        sessions["cpu-bf16 high"] = exchanged(
            lambda path: candidates.ours(path, "cpu-bf16", high=chosen.get(of[path], ())), models
        )
    for goal in options.min_snr:
        sessions[f"cpu-bf16 min-snr {goal:g}"] = _to_a_goal(models, data, goal)
    if options.float16:
        sessions["gpu-fp16"] = exchanged(lambda path: candidates.ours(path, "gpu-fp16"), models)
    for style in options.style:
        print(f"\n{style} pages\n")
        table(_measured(application, sessions, pages(style, options.seed, options.pages), options))


def _inputs(application: Application, pages: list[np.ndarray]) -> dict[str, list[dict]]:
    """What the nets are given on pages, by net."""
    application.seen = {}
    for picture in pages:
        application.lines(picture, application.own)
    seen, application.seen = application.seen, None
    return {net: [{"x": array} for array in arrays] for net, arrays in seen.items()}


def _to_a_goal(models: dict[str, Path], data: dict[str, list[dict]], goal: float) -> dict[str, Session]:
    import dovetail

    if "min_snr" not in inspect.signature(dovetail.compile).parameters:
        raise SystemExit("this Dovetail has no min_snr")
    of = {path: net for net, path in models.items()}

    def compiled(path: Path) -> candidates.Candidate:
        return candidates.ours(path, "cpu-bf16", min_snr=goal, data=data[of[path]], verify=True)

    return exchanged(compiled, models)


def _measured(application: Application, sessions: dict, pages: list[np.ndarray], options) -> list[dict]:
    judged: dict[str, list[tuple[bool, float]]] = {name: [] for name in sessions}
    nets, whole = (dict.fromkeys(sessions, 0.0) for _ in range(2))
    for number, picture in enumerate(pages):
        found, times = {}, {name: [] for name in sessions}
        for turn in range(options.repeat + 1):
            for name in sessions if turn % 2 == 0 else reversed(sessions):
                application.seconds, start = 0.0, time.perf_counter()
                found[name] = application.lines(picture, sessions[name])
                if turn or not options.repeat:  # the first turn prepares the sizes of this page
                    times[name].append((application.seconds, time.perf_counter() - start))
        for name in sessions:
            judged[name] += compared(found[FLOAT32], found[name])
            nets[name] += min(seconds for seconds, _ in times[name])
            whole[name] += min(seconds for _, seconds in times[name])
            if options.show:
                _show(number, name, found[FLOAT32], found[name])
    rows = []
    for name, lines in judged.items():
        same = sum(right for right, _ in lines)
        rows.append({
            "nets": name, "lines": len(lines), "same text": same, "%": 100 * same / len(lines),
            "box IoU": statistics.mean(share for _, share in lines),
            "nets ms per page": 1e3 * nets[name] / len(pages), "page ms": 1e3 * whole[name] / len(pages),
            "nets against float32": nets[FLOAT32] / nets[name], "page against float32": whole[FLOAT32] / whole[name],
        })  # fmt: skip
    return rows


def _show(number: int, name: str, expected: list[Line], found: list[Line]) -> None:
    for (_, text), (right, share) in zip(expected, compared(expected, found), strict=True):
        if not right:
            print(
                json.dumps({"page": number, "nets": name, "float32": text, "overlap": round(share, 3)}), file=sys.stderr
            )


if __name__ == "__main__":
    main()
