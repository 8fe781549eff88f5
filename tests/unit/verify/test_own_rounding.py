"""An original that rounds to integers is not the same twice; a comparison with it says how far it is from itself."""

import dovetail
import numpy as np
from dovetail_builder import Builder


def net(rounds):
    """Norms, which engines fuse, so that their sums differ, before steep functions, which tell small differences."""
    rng = np.random.default_rng(0)
    builder = Builder(name="norms")
    value = builder.input("x", "float32", [8, 64])
    axes, gamma, beta = (builder.constant(each) for each in (np.array([-1]), np.ones(64, "f4"), np.zeros(64, "f4")))
    for _ in range(3):
        centered = builder.Sub(value, builder.ReduceMean(value, axes))
        variance = builder.ReduceMean(builder.Pow(centered, builder.constant(np.float32(2))), axes)
        norm = builder.Div(centered, builder.Sqrt(builder.Add(variance, builder.constant(np.float32(1e-5)))))
        norm = builder.Add(builder.Mul(norm, gamma), beta)
        value = builder.Sin(builder.Mul(norm, builder.constant(np.float32(STEEP))))
        if rounds:
            value = builder.DequantizeLinear(*builder.op("DynamicQuantizeLinear", [value], outputs=3))
        value = builder.MatMul(value, builder.constant(rng.normal(0, 1, (64, 64)).astype("f4")))
    builder.output(value, "y")
    return builder.model()


STEEP = 1000.0  # radians per unit
DATA = [{"x": np.random.default_rng(seed).standard_normal((8, 64)).astype(np.float32)} for seed in range(12)]


def said(verification):
    assert verification.worst_snr_db < 30
    return [note for note in verification.notes if "rounds to integers as it runs" in note]


def test_it_is_said_how_far_the_original_is_from_itself():
    model = net(rounds=True)
    compiled = dovetail.compile(model, "cpu-bf16", data=DATA)
    for found in (compiled.verification, dovetail.verify(model, compiled, DATA)):
        (note,) = said(found)
        assert "dB from itself, so an SNR near that is no loss of the result" in note


def test_nothing_is_said_of_an_original_in_floats():
    assert said(dovetail.compile(net(rounds=False), "cpu-bf16", data=DATA).verification) == []
