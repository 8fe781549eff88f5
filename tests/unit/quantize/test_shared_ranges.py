"""A note where one scale joins values of very different ranges, which leaves the smaller ones few steps."""

import dovetail
import numpy as np
import pytest

BACKEND = """
backend: joining
device: npu
opset: 13..22
precision: {low: ELEMENT, high: float32}
types: {q: {dtype: ELEMENT, scheme: symmetric, observer: OBSERVER}}
ops:
  Concat: {types: q, same_scale: SAME}
  Add: {types: q, same_scale: [A, B]}
  Relu: {types: q, same_scale: true}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""
JOINED = """g (float[1,8] x) => (float[1,16] y) <float k = {FACTOR}> {
  small = Mul(x, k) [join] y = Concat<axis=1>(x, small) }"""
ADDED = "g (float[1,8] x) => (float[1,8] y) <float k = {FACTOR}> { small = Mul(x, k) [join] y = Add(x, small) }"
HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'


@pytest.fixture
def notes(with_backend, tmp_path, monkeypatch):
    """Compile a net whose value `small` is FACTOR times its input; return the notes, and the result."""

    def run(net, factor, same="true", element="int8", observer="minmax"):
        text = BACKEND.replace("SAME", same).replace("ELEMENT", element).replace("OBSERVER", observer)
        (tmp_path / "m.onnxtxt").write_text(HEAD + net.replace("FACTOR", factor))
        data = [{"x": np.random.default_rng(seed).uniform(-4, 4, (1, 8)).astype("float32")} for seed in range(20)]
        made = dovetail.compile(tmp_path / "m.onnxtxt", "joining", data=data, plugins=with_backend(text), verify=False)
        return [note for note in made.notes() if "share the scale" in note], made

    return run


@pytest.mark.parametrize("observer", ["minmax", "kl"])
@pytest.mark.parametrize("net", [JOINED, ADDED], ids=["Concat", "Add"])
def test_a_value_with_few_steps_is_named_with_the_node_that_joins_it(net, observer, notes):
    (note,), made = notes(net, "0.01", observer=observer)
    assert note.startswith("1 value has few steps because much larger ones share the scale: 'small' up to 0.0")
    assert note.endswith("beside 'x' up to 4 at 'join'") or "beside 'x' up to 3.9" in note
    (remark,) = [one for one in made.remarks if one.rule == "shared-scale"]
    assert remark.node == "join"
    assert "which leaves it 1." in remark.reason and "of 127 steps" in remark.reason
    assert "`same_scale: free`" in "\n".join(dovetail.explain(made, "join"))


SILENT = [
    (JOINED, "0.5", "true", "int8"),  # half of the range is 7 bits
    (JOINED, "0.01", "false", "int8"),  # scales of their own
    (JOINED, "0.01", "true", "int16"),  # a hundredth of 16 bits is enough
    (ADDED, "1", "true", "int8"),
]


@pytest.mark.parametrize(("net", "factor", "same", "element"), SILENT)
def test_nothing_is_said_where_nothing_is_lost(net, factor, same, element, notes):
    assert notes(net, factor, same, element)[0] == []
