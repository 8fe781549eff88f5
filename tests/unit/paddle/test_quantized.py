"""Quantized programs become QuantizeLinear and DequantizeLinear, with steps in place of largest magnitudes."""

import dovetail
import numpy as np

from .paddle_files import Legacy

RNG = np.random.default_rng(3)


def compiled(program: Legacy, folder):
    return dovetail.compile(program.save(folder), backends=["host"], try_engines=False)


def kinds(model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_linear_quantization_with_one_scale_for_each_channel_of_a_weight(tmp_path):
    weight = RNG.integers(-127, 128, (3, 4)).astype(np.float32)  # integers that the program declares as floats
    scale, steps = np.array([1, 2, 0.5, 3], np.float32), np.array([2.5], np.float32)
    program = Legacy().feed("x", (2, 3))
    program.parameter("w", weight).parameter("w.scale", scale).parameter("w.zero", np.zeros(4, np.float32))
    program.parameter("x.scale", steps).parameter("x.zero", np.zeros(1, np.float32))
    for name in ("q", "d"):
        program.var(name, (2, 3))
    program.var("f", (3, 4)).var("y", (2, 4))
    attributes = {"bit_length": 8, "is_test": True, "round_type": 0}
    ports = {"Scale": ["x.scale"], "ZeroPoint": ["x.zero"]}
    program.op("quantize_linear", {"X": ["x"], **ports}, {"Y": ["q"]}, quant_axis=-1, **attributes)
    program.op("dequantize_linear", {"X": ["q"], **ports}, {"Y": ["d"]}, quant_axis=-1, **attributes)
    ports = {"Scale": ["w.scale"], "ZeroPoint": ["w.zero"]}
    program.op("dequantize_linear", {"X": ["w"], **ports}, {"Y": ["f"]}, quant_axis=1, **attributes)
    program.op("matmul_v2", {"X": ["d"], "Y": ["f"]}, {"Out": ["y"]}).fetch("y")
    result = compiled(program, tmp_path)
    x = (RNG.random((2, 3), np.float32) - 0.5) * 4
    step = np.float32(2.5 / 127)
    wanted = np.clip(np.rint(x / step), -128, 127) * step @ (weight * scale / 127)
    np.testing.assert_allclose(result.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
    assert "Cast" not in kinds(result.model) and kinds(result.model).count("QuantizeLinear") == 1


def test_fake_quantization_with_a_learned_scale(tmp_path):
    program = Legacy().feed("x", (4, 4)).parameter("s", np.array([1.5], np.float32)).var("y", (4, 4))
    program.op("fake_quantize_dequantize_moving_average_abs_max", {"X": ["x"], "InScale": ["s"]}, {"Out": ["y"]},
               bit_length=8, is_test=True, moving_rate=0.9).fetch("y")  # fmt: skip
    result = compiled(program, tmp_path)
    assert kinds(result.model) == ["QuantizeLinear", "DequantizeLinear"]
    x = (RNG.random((4, 4), np.float32) - 0.5) * 2.5
    step = np.float32(1.5 / 127)
    np.testing.assert_allclose(result.run({"x": x})["y"], np.rint(x / step) * step, atol=1e-6)


def test_older_programs_compute_with_integers_that_are_floats(tmp_path):
    """`fake_dequantize_max_abs(matmul(fake_quantize(x), integers))`"""
    weight = RNG.integers(-127, 128, (3, 2)).astype(np.float32)
    program = Legacy().feed("x", (2, 3)).parameter("w", weight).parameter("s", np.array([2.0], np.float32))
    program.parameter("w.scale", np.array([0.3], np.float32))
    program.var("q", (2, 3)).var("q.scale", (1,)).var("m", (2, 2)).var("y", (2, 2))
    program.op("fake_quantize_range_abs_max", {"X": ["x"], "InScale": ["s"]}, {"Out": ["q"], "OutScale": ["q.scale"]},
               bit_length=8, is_test=True, window_size=10000)  # fmt: skip
    program.op("matmul_v2", {"X": ["q"], "Y": ["w"]}, {"Out": ["m"]})
    program.op("fake_dequantize_max_abs", {"X": ["m"], "Scale": ["w.scale"]}, {"Out": ["y"]}, max_range=127.0 * 127.0)
    program.fetch("y")
    x = RNG.random((2, 3), np.float32)
    wanted = (np.rint(x / 2 * 127) @ weight) * 0.3 / 127**2
    np.testing.assert_allclose(compiled(program, tmp_path).run({"x": x})["y"], wanted, rtol=1e-5)
