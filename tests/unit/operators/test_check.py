"""`dovetail check` on files of operators."""

import json

import pytest
from dovetail.cli.main import main

OPS = """
domain: acme
operators:
  - op: scaled_swish
    args: (Tensor x, float beta = 1.0)
    output: Tensor(out)
    composite: |
      b = Constant <value_float = @beta> ()
      out = Mul (x, b)
  - op: fused
    args: (Tensor x, Tensor[] ys)
    output: Tensor(out)
    infer_meta: {func: UnchangedInferMeta, param: [x]}
    kernel: {func: fused}
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "acme_ops.yaml"
        path.write_text(text)
        return path

    return write


def test_operators_are_listed_with_their_signatures(file, capsys):
    assert main(["check", str(file(OPS))]) == 0
    said = capsys.readouterr().out
    assert "acme::scaled_swish  (Tensor x, float beta = 1.0) -> Tensor out  composite" in said
    assert "acme::fused         (Tensor x, Tensor[] ys) -> Tensor out       kernel" in said
    assert main(["check", "--json", str(file(OPS))]) == 0
    assert [each["executed"] for each in json.loads(capsys.readouterr().out)["operators"]] == ["composite", "kernel"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Mul (x, b)", "Mull (x, b)", "acme_ops.yaml:4: 'scaled_swish': composite: opset 18 has no operator 'Mull'"),
        ("Tensor x, Tensor[] ys", "Tensor[] ys, Tensor x", "only the last input may be a list, and 'ys' is one"),
        ("kernel: {func: fused}", "kernal: {func: fused}", "unknown key 'kernal' (did you mean 'kernel'?)"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(file, capsys, old, new, says):
    assert main(["check", str(file(OPS.replace(old, new, 1)))]) == 1
    assert says in capsys.readouterr().err


def test_a_list_of_entries_is_one_of_paddles(file, capsys):
    entry = "- op : relu\n  args : (Tensor x)\n  output : Tensor(out)\n  invoke : relu6(x)\n"
    assert main(["check", str(file(entry))]) == 0
    assert "pd_op::relu" in capsys.readouterr().out
