"""Reports of large models: what writing one costs beside compiling, its size, and how the page behaves in Chromium.

    python bench/report.py [--nodes 20000 100000] [--no-browser]

The graph is that of growth.py for cpu-bf16 with every Softmax on the host, so that there is a region every five nodes,
and the same in one region. `write` is the processor time of collecting and writing the report over that of compiling.
Chromium is headless and draws in software, so frames per second are what a machine without a GPU has; `floor` is the
rate at which an empty element as large as the window moves in the same run. They fall with every other process on the
machine; `page ms` and `draw ms` do not: processor time of a frame in the page's own thread, and in the process that
draws in place of a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import dovetail
import onnx
from growth import build
from measure import table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "e2e"))
from chromium import PROGRAM, Chromium  # noqa: E402

FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
PAN = """new Promise(done => {
  const plain = document.getElementById("plain");
  const move = (x) => (plain.style.transform = `translate(${x}px, 0)`);
  const camera = plain ? { pan: move } : dovetailReport.view().camera;
  const start = performance.now();
  let frames = 0;
  const tick = () => {
    frames += 1;
    camera?.pan(Math.sin(frames / 20) * 6, 0);
    if (performance.now() - start < 3000) requestAnimationFrame(tick);
    else done(frames / (performance.now() - start) * 1000);
  };
  requestAnimationFrame(tick);
})"""


PLAIN = """void document.body.append(Object.assign(document.createElement("div"), { id: "plain",
  style: "position:fixed;inset:0;will-change:transform;background:linear-gradient(red,blue)" }))"""


class Page(Chromium):
    """A page with clocks."""

    def seconds(self, code: str) -> float:
        """Wall seconds until the frame after `code` is drawn."""
        start = time.monotonic()
        self.run(f"void ({code})")
        self.run(FRAME)
        return time.monotonic() - start

    def pan(self) -> tuple[float, float, float]:
        """Frames per second while the graph moves; milliseconds per frame of the page's thread, and of drawing."""
        page, draw = self._processor(), self._drawing()
        rate = self.run(PAN)
        frames = 3 * rate / 1000
        return rate, (self._processor() - page) / frames, (self._drawing() - draw) / frames

    def _drawing(self) -> float:
        """Processor seconds of the process that draws; 0 where /proc does not tell."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_text()
                if "--type=gpu-process" in command and self._profile.name in command:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                continue
        return 0.0

    def _processor(self) -> float:
        metrics = self.call("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def browse(path: Path) -> dict[str, str]:
    with Page() as page:
        page.call("Performance.enable", timeDomain="threadTicks")
        opened = page.open(path)
        page.run(PLAIN)
        floor, _, _ = page.pan()
        page.run("document.getElementById('plain').remove()")
        drawn = page.seconds("dovetailReport.show('Graph')")
        collapsed, _, _ = page.pan()
        expanded = page.seconds("dovetailReport.view().detail(3)")
        boxes = page.run("dovetailReport.view().drawing.number")
        time.sleep(1)
        rate, main, draw = page.pan()
        if page.messages:
            raise SystemExit(f"{path}: {page.messages}")
    return {
        "open s": f"{opened:.2g}", "graph s": f"{drawn:.2g}", "everything s": f"{expanded:.2g}", "boxes": str(boxes),
        "floor fps": f"{floor:.0f}", "first view fps": f"{collapsed:.0f}", "everything fps": f"{rate:.0f}",
        "page ms": f"{main:.1f}", "draw ms": f"{draw:.0f}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs="+", type=int, default=[20_000, 100_000])
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for nodes in options.nodes:
            source = Path(work, f"growth{nodes}.onnx")
            onnx.save(build(nodes), str(source))
            for name, pins in (("regions", ["type:Softmax=host"]), ("one region", [])):
                start = time.process_time()
                compiled = dovetail.compile(source, "cpu-bf16", pins=pins, try_engines=False)
                compiled.save(Path(work, "out"))
                compile_seconds = time.process_time() - start
                page = Path(work, "report.html")
                start = time.process_time()
                dovetail.report(compiled).save(page)
                seconds = time.process_time() - start
                row = {
                    "model": f"{nodes} nodes, {name}", "compile s": f"{compile_seconds:.3g}",
                    "report s": f"{seconds:.3g}",
                    "write": f"{seconds / compile_seconds:.2f}", "MB": f"{page.stat().st_size / 1e6:.3g}",
                }  # fmt: skip
                if PROGRAM is not None and not options.no_browser:
                    row |= browse(page)
                rows.append(row)
                print(row, file=sys.stderr)
    print(table(rows))


if __name__ == "__main__":
    main()
