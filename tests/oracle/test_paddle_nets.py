"""Small nets exported by Paddle, with the outputs that Paddle computed: translated and run.

They are written in `paddle_nets/nets`, by somebody else than the rules; `paddle_nets/README.md` says how they are made.
"""

import zipfile
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError

from .paddle_files import ARCHIVE, nets, recorded

CLOSE = 1e-5  # of the largest value
HALF = 2e-3  # where there is float16: Paddle 2.6 does not round to the nearest there
REFUSED = "beyond_onnx"


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("nets")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(found)
    return found


def assert_close(found: np.ndarray, wanted: np.ndarray, at: int, share: float = CLOSE) -> None:
    """Equal in type and extents, in integers and booleans, and within a share of the largest value in floats."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), at
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, f"output {at}")
        return
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    most = share * max(finite.max(initial=0), 1e-3)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=most, err_msg=f"output {at}")


@pytest.mark.generated(others=2)
@pytest.mark.parametrize("name", [name for name in nets() if REFUSED not in name])
def test_a_net_computes_what_paddle_computed(name, folder):
    inputs, expected = recorded(folder / name)
    compiled = dovetail.compile(folder / name, backends=["host"], try_engines=False)
    found = list(compiled.run({name: inputs[name] for name in compiled.model.interface()[0]}).values())
    assert len(found) == len(expected)
    share = HALF if any(wanted.dtype == np.float16 for wanted in expected) else CLOSE
    for at, (array, wanted) in enumerate(zip(found, expected, strict=True)):
        assert_close(array, wanted, at, share)


@pytest.mark.parametrize("name", [name for name in nets() if REFUSED in name])
def test_functions_without_a_form_in_onnx_are_refused_together(name, folder):
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(folder / name, backends=["host"])
    text = caught.value.message
    assert "5 operators cannot be lowered" in text
    for operator in ("erfinv", "lgamma", "digamma", "i0", "inverse"):
        assert f"{operator}: there is no rule for it" in text
