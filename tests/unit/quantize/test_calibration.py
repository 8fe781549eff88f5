"""Scales and zero points: from ranges, from observers of plugins, and from plans."""

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.planning import Parameters
from dovetail_quantize.integers import integer_bounds, parameters_of_range, quantize_array

from .conftest import NET

FORMATS = [
    ("int8[symmetric]", -1.0, 2.0, (-127, 127), 2 / 127, 0),
    ("int8[asymmetric]", -1.0, 2.0, (-128, 127), 3 / 255, -43),
    ("uint8[asymmetric]", -1.0, 2.0, (0, 255), 3 / 255, 85),
    ("uint8[symmetric]", -1.0, 2.0, (0, 255), 2 / 127, 128),
    ("int16[symmetric]", -1.0, 2.0, (-32767, 32767), 2 / 32767, 0),
    ("int4[symmetric]", -1.0, 2.0, (-7, 7), 2 / 7, 0),
    ("int8[power-of-two]", -1.0, 2.0, (-127, 127), 2**-5, 0),
    ("uint8[asymmetric]", 1.0, 2.0, (0, 255), 2 / 255, 0),  # zero is always held exactly
    ("uint8[asymmetric]", -2.0, -1.0, (0, 255), 2 / 255, 255),
    ("int8[symmetric]", 0.0, 0.0, (-127, 127), 1.0, 0),  # any scale holds zero
]


@pytest.mark.parametrize(("text", "low", "high", "integers", "scale", "zero_point"), FORMATS)
def test_a_range_in_a_format(text, low, high, integers, scale, zero_point):
    format_ = Format.of(text)
    assert integer_bounds(format_) == integers
    found = parameters_of_range(format_, np.float32(low), np.float32(high))
    assert found.zero_point == (zero_point,)
    assert found.scale[0] == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("text", ["int8[asymmetric]", "uint8[asymmetric]", "int16[asymmetric]"])
def test_weights_are_rounded_as_quantizelinear_rounds(text):
    import onnx
    from onnx.reference import ReferenceEvaluator

    format_ = Format.of(text)
    array = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32) * 4
    parameters = Parameters((0.03125,), (3,))
    node = onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    zero = np.array(3, format_.dtype.numpy())
    (expected,) = ReferenceEvaluator(node, opsets={"": 21}).run(None, {"x": array, "s": np.float32(0.03125), "z": zero})
    low, high = integer_bounds(format_)
    assert np.array_equal(quantize_array(array, format_, parameters), np.clip(expected, low, high))


def test_every_channel_has_its_own_scale():
    format_ = Format.of("int8[symmetric,axis=1]")
    array = np.array([[1.0, 10.0], [-2.0, 20.0]], np.float32)
    parameters = parameters_of_range(format_, array.min(0), array.max(0))
    assert parameters.scale == pytest.approx((2 / 127, 20 / 127))
    assert quantize_array(array, format_, parameters).tolist() == [[64, 64], [-127, 127]]


OBSERVERS = """
from dovetail.plugin import Observer, Parameters

class Broken(Observer):
    def __init__(self, format_): pass
    def update(self, array): raise SystemExit(3)
    def parameters(self): return Parameters((1.0,), (0,))

class Silent(Broken):
    def update(self, array): pass
    def parameters(self): raise ValueError("nothing was worth it")

class Zero(Silent):
    def parameters(self): return Parameters((0.0,), (0,))

class Listed(Silent):
    def parameters(self): return [1.0]

class Unmade(Broken):
    def __init__(self): pass
"""

MISTAKES = [
    ("Broken", "fails on 'x' in int8[symmetric]: SystemExit: 3"),
    ("Silent", "finds no scale for 'x' in int8[symmetric]: nothing was worth it"),
    ("Zero", "gives Parameters(scale=(0.0,), zero_point=(0,)) for 'x' in int8[symmetric]"),
    ("Listed", "gives [1.0] for 'x' in int8[symmetric]"),
    ("Unmade", "cannot be made for 'x' in int8[symmetric]: TypeError"),
]


@pytest.mark.parametrize(("observer", "says"), MISTAKES)
def test_a_mistake_of_an_observer_is_named_with_its_distribution_and_the_value(
    compiled, installed, tmp_path, monkeypatch, observer, says
):
    monkeypatch.syspath_prepend(tmp_path)
    plugins = installed(
        ("q8: {dtype: int8, scheme: symmetric}", "q8: {dtype: int8, scheme: symmetric, observer: acme}"), fresh=True
    )
    (tmp_path / "acme_observers.py").write_text(OBSERVERS)
    with plugins.registry.on_behalf_of("dovetail-acme"):
        plugins.registry.observer("acme", f"acme_observers:{observer}")
    with pytest.raises(DovetailError) as caught:
        compiled(plugins=plugins)
    assert f"observer 'acme' of dovetail-acme {says}" in str(caught.value)


def test_an_observer_that_nobody_brings(compiled):
    changes = ("q8: {dtype: int8, scheme: symmetric}", "q8: {dtype: int8, scheme: symmetric, observer: minmx}")
    with pytest.raises(DovetailError, match="unknown observer 'minmx'.*did you mean 'minmax'"):
        compiled(NET, changes)


def test_numbers_that_are_not_finite(compiled, samples):
    samples["x"][0, 0, 0, 0] = np.nan
    with pytest.raises(DovetailError, match="NaN"):
        compiled(data=samples)


UNREADABLE = "the quantized value 'x' cannot be read: "
PLANS = [
    (lambda entry: entry.pop("scale"), "nothing says in which range 'x' lies"),
    (lambda entry: entry.update(scale=-1.0), UNREADABLE + "scale -1.0 is not a positive number"),
    (lambda entry: entry.update(zero_point=0.5), "zero_point 0.5 is not a whole number per scale"),
    (lambda entry: entry.update(format="int8[symetric]"), UNREADABLE + "'int8[symetric]': 'symetric' is no"),
    (lambda entry: entry.update(scale=[1.0, 2.0], zero_point=[0, 0]),
     "the quantized value 'x' in int8[symmetric] has 2 scales, and needs 1"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), PLANS)
def test_a_plan_with_parameters_that_do_not_fit(compiled, installed, change, says):
    plugins = installed()
    plan = compiled(plugins=plugins).plan
    change(plan.values["x"][0])
    with pytest.raises(DovetailError) as caught:
        compiled(data=None, plan=plan, plugins=plugins)
    assert says in str(caught.value)


def test_a_plan_in_which_a_shared_scale_differs(compiled, installed):
    plugins = installed()
    plan = compiled(plugins=plugins).plan
    plan.values["s"][0]["scale"] *= 2
    with pytest.raises(DovetailError, match="shares its scale with 's', 'c', 'd', and the plan has different ones"):
        compiled(data=None, plan=plan, plugins=plugins)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_zero_point_of_a_range_around_zero_does_not_hang_on_its_last_bit(dtype):
    """The range of a tanh is such a tie, and its last bits depend on the CPU."""
    format_ = Format.of(f"{dtype}[asymmetric]")
    one, below = np.float32(1), np.nextafter(np.float32(1), np.float32(0))
    found = {parameters_of_range(format_, -low, high).zero_point for low in (one, below) for high in (one, below)}
    assert len(found) == 1
