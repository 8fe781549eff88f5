"""Files become models by front ends, and errors name front end, file and line."""

import hashlib

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.ir import Model
from dovetail.plugin import PluginWarning

PROTO = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2] x) => (float[1, 2] y) { y = Relu (x) }"""
BODIES = {
    "proto": "return onnx.parser.parse_model(TEXT)",
    "ir": "return ir.from_proto(onnx.parser.parse_model(TEXT))",
    "model": "return Model(ir.from_proto(onnx.parser.parse_model(TEXT)))",
    "nothing": "return None",
    "invalid": "return onnx.parser.parse_model(TEXT.replace('(x) }', '(nowhere) }'))",
    "fault": "raise DovetailError(f'{path}:3: no operator frobnicate', 'use relu')",
    "fault-elsewhere": "raise DovetailError('line 3 is wrong')",
    "crash": "return {}['key']",
    "leaves": "raise SystemExit(0)",
    "syntax": "compile('a b', 'somewhere', 'exec')",
    "other-line": "error = ValueError('odd word'); error.lineno = 7; raise error",
}


@pytest.fixture
def toy(install, plugin, tmp_path):
    """`toy(body)`: install a frontend for `.toy` files with this way to read, and give such a file."""

    def make(body="proto", suffixes='(".toy",)', name="toy", distribution="acme", write=""):
        module = f"{distribution}_toy"
        text = (
            "import onnx\nimport onnx_ir as ir\nfrom dovetail.plugin import DovetailError, Frontend\n"
            f"from dovetail.ir.model import Model\nTEXT = {PROTO!r}\n"
            f"class Toy(Frontend):\n    suffixes = {suffixes}\n"
            f"    def read(self, path):\n        {BODIES.get(body, body)}\n"
        )
        if write:
            text += f"    def write(self, model, path, *, external, progress):\n        {write}\n"
        hooks = plugin(register=f"registry.frontend({name!r}, '{module}:Toy')")
        install(distribution, {distribution: f"{module}_hooks"}, {f"{module}.py": text, f"{module}_hooks.py": hooks})
        path = tmp_path / "m.toy"
        path.write_text("relu\n")
        return path

    return make


@pytest.mark.parametrize("body", ["proto", "ir", "model"])
def test_a_file_of_another_format_is_compiled_run_and_verified(toy, body, tmp_path):
    path = toy(body)
    assert [node.op_type for node in dovetail.open(path).graph] == ["Relu"]
    compiled = dovetail.compile(path, "host")
    np.testing.assert_array_equal(compiled.run({"x": [[-1, 2]]})["y"], [[0, 2]])
    compiled.save(tmp_path / "out")
    plan = dovetail.load(tmp_path / "out").plan
    assert plan.model["path"] == "m.toy"
    assert plan.model["sha256"] == hashlib.sha256(b"relu\n").hexdigest()
    assert dovetail.verify(path, tmp_path / "out").broken is False


def test_every_command_takes_such_a_file(toy, tmp_path, capsys):
    path = toy()
    np.savez(tmp_path / "data.npz", x=np.ones((1, 2), np.float32))
    out, data = tmp_path / "out", tmp_path / "data.npz"
    for arguments in (
        ["opt", path, "-p", "normalize"],
        ["plan", path, "--backend", "host"],
        ["compile", path, "--backend", "host", "-o", out],
        ["verify", path, out],
        ["run", out, "--data", data],
        ["run", path, "--data", data],
    ):
        assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("nothing", "frontend 'toy' of acme returns NoneType for {path}"),
        ("invalid", "{path}: node Relu of 'y' reads 'nowhere', which nothing defines"),
        ("fault", "{path}:3: no operator frobnicate\n  use relu; frontend 'toy' of acme read it"),
        ("fault-elsewhere", "{path}: line 3 is wrong\n  frontend 'toy' of acme read it"),
        ("crash", "{path}: frontend 'toy' of acme cannot read it: KeyError: 'key'"),
        ("leaves", "{path}: frontend 'toy' of acme cannot read it: SystemExit: 0"),
        ("syntax", "{path}:1: frontend 'toy' of acme cannot read it: SyntaxError"),
        ("other-line", "{path}:7: frontend 'toy' of acme cannot read it: ValueError: odd word"),
    ],
)
def test_errors_name_the_frontend_its_distribution_and_the_file(toy, body, message):
    path = toy(body)
    with pytest.raises(DovetailError) as caught:
        dovetail.open(path)
    assert message.format(path=path) in str(caught.value)
    assert "acme" in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("suffixes", "message"),
    [
        ('("toy",)', "the suffix 'toy' does not start with a dot"),
        ('".toy"', "'suffixes' is not a tuple of texts"),
        ("1 / 0", "frontend 'toy' of acme cannot be loaded from acme_toy:Toy: ZeroDivisionError"),
    ],
)
def test_a_frontend_at_fault_is_left_out_and_the_others_read(toy, suffixes, message, tmp_path):
    path = toy(suffixes=suffixes)
    toy(suffixes='(".good",)', name="good", distribution="brick")
    good = tmp_path / "m.good"
    good.write_text("relu")
    with pytest.warns(PluginWarning) as caught:
        assert dovetail.open(good).node_count() == 1
    assert message in next(str(each.message) for each in caught if each.category is PluginWarning)
    with (
        pytest.warns(PluginWarning),
        pytest.raises(DovetailError, match=r"is not an ONNX model.*\n.*installed for .good, .*\.onnx"),
    ):
        dovetail.open(path)


def test_a_front_end_writes_files_of_its_suffix(toy, tmp_path):
    path = toy(write="path.write_text(f'{model.node_count()} nodes')")
    model = dovetail.open(path)
    model.save(tmp_path / "copy.toy")
    assert (tmp_path / "copy.toy").read_text() == "1 nodes"
    assert main(["opt", str(path), "-p", "", "-o", str(tmp_path / "again.toy")]) == 0
    assert (tmp_path / "again.toy").read_text() == "1 nodes"
    model.save(tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx").graph.node[0].op_type == "Relu"


def test_where_a_front_end_only_reads_files_are_onnx(toy, tmp_path):
    dovetail.open(toy()).save(tmp_path / "copy.toy")
    assert onnx.load(tmp_path / "copy.toy").graph.node[0].op_type == "Relu"


def test_what_a_front_end_raises_while_it_writes_names_it(toy, tmp_path):
    toy(write="return {}['key']")
    with pytest.raises(DovetailError, match="frontend 'toy' of acme failed: KeyError"):
        Model(ir.from_proto(onnx.parser.parse_model(PROTO))).save(tmp_path / "copy.toy")


def test_text_is_written_as_text(tmp_path):
    Model(ir.from_proto(onnx.parser.parse_model(PROTO))).save(tmp_path / "m.onnxtxt")
    assert "y = Relu (x)" in (tmp_path / "m.onnxtxt").read_text()
    assert dovetail.open(tmp_path / "m.onnxtxt").node_count() == 1


def test_two_frontends_for_one_suffix(toy):
    toy()
    path = toy(name="other", distribution="brick")
    with pytest.raises(DovetailError, match="frontend 'other' of brick and frontend 'toy' of acme both read"):
        dovetail.open(path)


def test_a_second_front_end_for_onnx_files_is_refused(toy, tmp_path):
    toy(suffixes='(".onnx",)')
    onnx.save(onnx.parser.parse_model(PROTO), tmp_path / "m.onnx")
    with pytest.raises(DovetailError, match="frontend 'onnx' of dovetail-onnx and frontend 'toy' of acme both read"):
        dovetail.open(tmp_path / "m.onnx")


def test_the_longest_suffix_decides(toy, tmp_path):
    toy(suffixes='(".net.txt",)')
    (tmp_path / "m.net.txt").write_text("relu")
    assert dovetail.open(tmp_path / "m.net.txt").node_count() == 1
    (tmp_path / "m.txt").write_text(PROTO.replace("Relu", "Tanh"))
    assert [node.op_type for node in dovetail.open(tmp_path / "m.txt").graph] == ["Tanh"]


def test_a_front_end_at_fault_keeps_no_onnx_model_from_opening(toy, tmp_path):
    toy(suffixes="1 / 0")
    onnx.save(onnx.parser.parse_model(PROTO), tmp_path / "m.onnx")
    for model in (tmp_path / "m.onnx", ir.load(tmp_path / "m.onnx"), (tmp_path / "m.onnx").read_bytes()):
        with pytest.warns(PluginWarning, match="frontend 'toy' of acme cannot be loaded"):
            assert isinstance(dovetail.open(model), Model)


def test_what_is_no_file(toy, tmp_path):
    toy()
    with pytest.raises(DovetailError, match="gone.toy does not exist"):
        dovetail.open(tmp_path / "gone.toy")
    (tmp_path / "folder.toy").mkdir()
    with pytest.raises(DovetailError, match="folder.toy is a folder, not a model"):
        dovetail.open(tmp_path / "folder.toy")


class LazyModel:
    """A model whose graph is made when it is asked for."""

    built = 0

    def build(self):
        self.built += 1
        return ir.from_proto(onnx.parser.parse_model(PROTO))

    def copy(self):
        return self

    def interface(self):
        return ["x"], ["y"]

    def initializer_names(self):
        return set()

    def node_count(self):
        return 1


def test_a_graph_is_built_when_it_is_asked_for():
    held = LazyModel()
    model = Model(lazy=held)
    assert model.untouched
    assert (model.node_count(), model.interface(), model.initializer_names()) == (1, (["x"], ["y"]), set())
    assert repr(model.clone()) == "<Model>"
    assert not held.built
    assert [node.op_type for node in model.nodes()] == ["Relu"]
    assert model.lazy is None
    assert (model.node_count(), held.built) == (1, 1)
