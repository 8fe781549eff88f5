"""Names of strangers on the terminal: shown, never obeyed."""

import string

import pytest
from dovetail.cli.main import main
from dovetail.text import abbreviated, printable
from onnx import TensorProto, helper


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain_name/with.dots:0", "plain_name/with.dots:0"),
        ("ümläut 名前", "ümläut 名前"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\r\nb\tc\0", r"a\r\nb\tc\x00"),
        ("\x7f\x9b2J", r"\x7f\x9b2J"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\u061cb", r"a\u061cb"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def test_our_own_lines_stay_lines():
    assert printable("one\ntwo\x1b", lines=True) == "one\ntwo\\x1b"


EVIL = "\x1b[2J\x1b]0;pwned\x07evil\x7f\x9b\u202e\u2066\u061c"


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A valid model whose names hold terminal escapes; ONNX Runtime runs it."""
    monkeypatch.chdir(tmp_path)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], [EVIL], EVIL),
        helper.make_node("Relu", [EVIL], ["y"], "r\r\nerror: fine"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [EVIL, 4]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [x], [y], [helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.5] * 16)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    nodes[1].input[0] = EVIL + "gone"
    graph.node[1].CopyFrom(nodes[1])
    (tmp_path / "broken.onnx").write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
    )


COMMANDS = (
    ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out", "--verify"],
    ["opt", "m.onnx", "-p", "normalize", "--remarks"],
    ["compile", "broken.onnx", "--backend", "host"],
    ["compile", "m.onnx", "--backend", "host", "--print-after", "all", "--stats", "--timing"],
    ["compile", "m.onnx", "--backend", "host", "--pin", "nobody=host/float32"],
    ["compile", "m.onnx", "--backend", "cpu-bf16", "--json"],
    ["plan", "m.onnx", "--backend", "cpu-bf16"],
    ["plan", "m.onnx", "--backend", "cpu-bf16", "-o", f"{EVIL}.yaml".replace("/", "")],
    ["doctor", "m.onnx"],
    ["coverage", "m.onnx"],
    ["backends", EVIL],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_no_command_sends_them_to_the_terminal(evil, capsys, command):
    main(command)
    out, err = capsys.readouterr()
    assert not set(EVIL + "\r") & set(out + err) - set(string.printable[:-6])
    assert "\nerror: fine" not in out + err


LONG = "n" * 1_000_000


def with_long_names(kind):
    """A model in which something has a name of a megabyte."""
    names = {"node": "node", "input": "x", "operator": "Relu", "domain": ""} | {kind: LONG}
    made = [helper.make_node(names["operator"], [names["input"]], ["y"], name=names["node"], domain=names["domain"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in (names["input"], "y")]
    graph = helper.make_graph(made, "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(LONG, 1)] if kind == "domain" else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["node", "input", "operator", "domain"])
@pytest.mark.parametrize(
    "command",
    [
        ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out"],
        ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out", "--verify"],
        ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out", "--data", "d.npz"],
        ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out", "--pin", "x=cpu-bf16"],
        ["bisect", "m.onnx", "--backend", "cpu-bf16", "--data", "d.npz"],
    ],
)  # fmt: skip
def test_names_of_a_megabyte_are_cut_in_messages(kind, command, tmp_path, monkeypatch, capsys):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(with_long_names(kind).SerializeToString())
    np.savez("d.npz", z=np.zeros((2, 3), np.float32))
    main(command)
    said = capsys.readouterr()
    assert 0 < len(said.out + said.err) < 10_000


def test_only_long_names_are_cut():
    assert abbreviated("a short text") == "a short text"
    assert abbreviated(f"node '{LONG}' is wrong") == f"node '{LONG[:119]}... (1,000,002 characters) is wrong"
    assert abbreviated("word " * 100) == "word " * 100
    assert abbreviated(f"one\n{LONG}\nthree").splitlines()[::2] == ["one", "three"]
    assert abbreviated("a b " * 250_000).endswith("... (1,000,000 characters)")
