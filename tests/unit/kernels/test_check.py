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


def test_a_module_of_no_plugin_is_not_imported(file, tmp_path, capsys, monkeypatch):
    """Importing a module runs it, and the file may come from anybody."""
    (tmp_path / "strangers.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\ndef Infer(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = OPS.replace("domain: acme", "domain: acme\nfunctions: strangers").replace("UnchangedInferMeta", "Infer")
    assert main(["check", str(file(text))]) == 1
    said = capsys.readouterr().err
    assert "acme_ops.yaml:3: functions: strangers is not part of an installed plugin" in said
    assert "entry point in the group 'dovetail'" in said
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("module", ["this", "antigravity", "os.path", "json.tool", "", "dovetail_testing_evil"])
def test_no_module_of_the_environment_is_imported_either(file, module, capsys):
    text = OPS.replace("domain: acme", f"domain: acme\nfunctions: {module or '..'}")
    assert main(["check", str(file(text))]) == 1
    assert "acme_ops.yaml:3: functions:" in capsys.readouterr().err


def test_a_module_of_an_installed_plugin_is_imported(file, capsys):
    functions = "functions: dovetail_kernels.operator_files.inference"
    text = OPS.replace("domain: acme", f"domain: acme\n{functions}").replace("UnchangedInferMeta", "meta_of_reduce")
    assert main(["check", str(file(text))]) == 1
    said = capsys.readouterr().err
    assert "neither dovetail_kernels.operator_files.inference nor the standard functions have 'meta_of_reduce'" in said
