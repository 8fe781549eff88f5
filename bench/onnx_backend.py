"""Run onnx's node tests through `dovetail_adapters.onnx_backend`, and list what does not pass.

python bench/onnx_backend.py             all of them, about ten minutes on two cores
python bench/onnx_backend.py --one-of 5
"""

from __future__ import annotations

import argparse
import io
import unittest
import warnings

from dovetail_adapters.onnx_backend import DovetailBackend
from onnx.backend.test.runner import Runner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-of", type=int, default=1, metavar="N")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = Runner(DovetailBackend, __name__).test_cases["OnnxBackendNodeModelTest"]
    names = sorted(name for name in vars(cases) if name.startswith("test_") and name.endswith("_cpu"))[:: args.one_of]
    result = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite(map(cases, names)))
    wrong = result.failures + result.errors
    for case, text in wrong:
        lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
        print(f"{case.id().rpartition('.')[2]}: {lines[-1][:150]}")
    print(f"{result.testsRun - len(wrong)} of {result.testsRun} pass")


if __name__ == "__main__":
    main()
