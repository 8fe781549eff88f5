"""Names of strangers on the terminal: shown, never obeyed."""

import pytest
from dovetail.cli.main import main
from dovetail.text import printable
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
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def test_our_own_lines_stay_lines():
    assert printable("one\ntwo\x1b", lines=True) == "one\ntwo\\x1b"


EVIL = "\x1b[2J\x1b]0;pwned\x07evil\x7f\x9b"


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
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_no_command_sends_them_to_the_terminal(evil, capsys, command):
    main(command)
    out, err = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x7f", "\x9b", "\r"} & set(out + err)
    assert "\nerror: fine" not in out + err
