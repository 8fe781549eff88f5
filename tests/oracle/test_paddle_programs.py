"""Programs of Paddle with the outputs that Paddle computed: translated, compiled for the host and run.

`legacy` holds programs of Paddle 2.6 (`.pdmodel`), `pir` and `operators` those of Paddle 3 (`.json`), `translated`
legacy programs that Paddle 3 translated, `older` single operators of older programs, and `mixed` legacy ones that
Paddle converted to float16.
"""

from pathlib import Path

import dovetail
import numpy as np
import pytest

from .paddle_files import PROGRAMS, recorded

FILES = sorted([*PROGRAMS.glob("legacy/*.pdmodel"), *PROGRAMS.glob("older/*.pdmodel"), *PROGRAMS.glob("*/*.json")])
MIXED = sorted(PROGRAMS.glob("mixed/*.pdmodel"))


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.generated
@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_program_computes_what_paddle_computed(path):
    inputs, expected = recorded(path)
    compiled = dovetail.compile(path, backends=["host"], try_engines=False)
    found = list(compiled.run({name: inputs[name] for name in compiled.model.interface()[0]}).values())
    assert [(array.shape, array.dtype) for array in found] == [(array.shape, array.dtype) for array in expected]
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.generated
@pytest.mark.parametrize("path", FILES[:: len(FILES) // 6], ids=named)
def test_a_program_compiles_for_bfloat16(path):
    inputs, expected = recorded(path)
    compiled = dovetail.compile(path, backends=["cpu-bf16"], try_engines=False)
    found = compiled.run({name: inputs[name] for name in compiled.model.interface()[0]}).values()
    assert [array.shape for array in found] == [array.shape for array in expected]


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("path", MIXED, ids=named)
def test_a_program_of_mixed_precision_keeps_its_types(path):
    inputs, expected = recorded(path)
    compiled = dovetail.compile(path, backends=["host"], try_engines=False)
    kinds = {value.dtype.name for value in compiled.model.graph.initializers.values()}
    assert "FLOAT16" in kinds
    found = compiled.run({name: inputs[name] for name in compiled.model.interface()[0]}).values()
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-2, atol=1e-2)
