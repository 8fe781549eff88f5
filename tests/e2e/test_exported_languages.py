"""An export for a single engine is run by the examples of docs/reference/exported.md, in Python, Node and a browser.

Node and browser need `DOVETAIL_NPM`, a folder in which `npm install onnxruntime-node onnxruntime-web` was run.
"""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import dovetail
import numpy as np
import pytest

from . import chromium

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
IMAGES = np.load(DIGITS / "test.npz")["image"][:4]
FILES = re.compile(r"^<!-- file: (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PACKAGES = Path(os.environ.get("DOVETAIL_NPM") or "/nowhere") / "node_modules"
OTHER_KERNELS = 1e-6  # WebAssembly and WebGPU add in another order: 3e-7 was measured, of probabilities
WEBGPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")


def installed(package):
    missing = shutil.which("node") is None or not (PACKAGES / package).is_dir()
    return pytest.mark.skipif(missing, reason=f"needs Node, and {package} in the folder that DOVETAIL_NPM names")


# An optimizer that the export rules out would change the answers of gpu-fp16 by 6e-4.
BACKENDS = [
    "gpu-fp16",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("cpu-int8:runtime=onnxruntime", "host")),
]


@pytest.fixture(scope="module", params=BACKENDS)
def site(request, tmp_path_factory):
    """A folder with an export, images, and the files of the documentation; and what `dovetail run` gives for these."""
    folder = tmp_path_factory.mktemp("single")
    result = dovetail.compile(DIGITS / "digits.onnx", request.param, data=DIGITS / "test.npz")
    result.save(folder / "out")
    dovetail.export(folder / "out", folder / "shipped")
    IMAGES.tofile(folder / "image.bin")
    for name, text in FILES.findall((ROOT / "docs/reference/exported.md").read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "node_modules").symlink_to(PACKAGES)
    (folder / "ort").symlink_to(PACKAGES / "onnxruntime-web" / "dist")
    return folder, result.run({"image": IMAGES})["probabilities"]


def answer_of(folder, *command):
    done = subprocess.run([*command, "shipped", "image.bin", "answer.bin"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.fromfile(folder / "answer.bin", np.float32).reshape(-1, 10)


def test_python_without_dovetail_computes_the_same_bytes(site):
    folder, expected = site
    np.testing.assert_array_equal(answer_of(folder, sys.executable, "single.py"), expected)


@installed("onnxruntime-node")
def test_node_computes_the_same_bytes(site):
    folder, expected = site
    np.testing.assert_array_equal(answer_of(folder, "node", "single.mjs", "onnxruntime-node"), expected)


@installed("onnxruntime-web")
def test_webassembly_in_node_differs_by_its_own_kernels_alone(site):
    folder, expected = site
    found = answer_of(folder, "node", "single.mjs", "onnxruntime-web")
    np.testing.assert_allclose(found, expected, rtol=0, atol=OTHER_KERNELS)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Write nothing."""


@pytest.fixture
def address(site):
    """Serves the folder to this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site[0]))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@installed("onnxruntime-web")
@pytest.mark.skipif(chromium.PROGRAM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_a_browser_differs_by_its_own_kernels_alone(site, address, provider):
    _, expected = site
    with chromium.Chromium(flags=WEBGPU) as page:
        page.open(f"{address}/single.html?provider={provider}")
        if provider == "webgpu":
            features = page.run("navigator.gpu?.requestAdapter().then(found => found && [...found.features])")
            halves = "gpu-fp16" in (site[0] / "shipped" / "deploy.json").read_text()
            if features is None or halves and "shader-f16" not in features:
                pytest.skip("the browser has no WebGPU for this export")
        found = page.run("window.answer")
    np.testing.assert_allclose(np.array(found, np.float32).reshape(-1, 10), expected, rtol=0, atol=OTHER_KERNELS)
