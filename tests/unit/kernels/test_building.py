"""Functions that build nodes of operators that files define."""

import inspect

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError, UsageError

from .test_flow import SWISH, X, swish


def test_a_function_has_the_signature_of_its_entry(with_operators, domain):
    functions = dovetail.operators(domain, with_operators(SWISH.format(domain=domain)))
    assert dir(functions) == ["scaled_swish", "twice"]
    assert str(inspect.signature(functions.scaled_swish)) == "(builder, x, beta=1.0)"
    assert "defined in ops.yaml:5" in functions.scaled_swish.__doc__


def test_what_it_builds_is_compiled_and_run(with_operators, domain):
    plugins = with_operators(SWISH.format(domain=domain))
    builder, own = dovetail.Builder(), dovetail.operators(domain, plugins)
    x = builder.input("x", "float32", [2, 3])
    builder.output(own.twice(builder, own.scaled_swish(builder, x, beta=0.5)), "y")
    compiled = dovetail.compile(builder.model(), "cpu-bf16", plugins=plugins, high=("*",))
    assert np.allclose(compiled.run({"x": X})["y"], 2 * swish(swish(X, 0.5), 2.0), atol=1e-5)


def test_mistakes_name_the_signature_the_operator_and_the_domain(with_operators, domain):
    plugins = with_operators(SWISH.format(domain=domain))
    own = dovetail.operators(domain, plugins)
    with pytest.raises(UsageError, match="got an unexpected keyword argument 'gamma'") as raised:
        own.scaled_swish(dovetail.Builder(), None, gamma=1)
    assert "(builder, x, beta=1.0)" in raised.value.hint
    with pytest.raises(AttributeError, match="has no operator 'scaled_swich' .did you mean 'scaled_swish'"):
        own.scaled_swich  # noqa: B018
    with pytest.raises(DovetailError, match="no file of operators has the domain 'acne'"):
        dovetail.operators("acne", plugins)
