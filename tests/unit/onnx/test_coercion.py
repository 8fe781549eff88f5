"""Models in every form that users have them go through the same check."""

import onnx
import onnx.parser
import onnx_ir
import pytest
from dovetail import compile
from dovetail.errors import DovetailError
from dovetail.plugin.loading import open_any

GOOD = """<ir_version: 10, opset_import: ["" : 22]> g (float[2] x) => (float[2] y) { [relu] y = Relu (x) }"""
BAD = GOOD.replace("Relu (x)", "Relu <k = 1> (x)")


def path_of(proto, folder):
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


FORMS = {
    "a path": path_of,
    "text of a path": lambda proto, folder: str(path_of(proto, folder)),
    "a proto": lambda proto, _: proto,
    "bytes": lambda proto, _: proto.SerializeToString(),
    "onnx-ir": lambda proto, _: onnx_ir.from_proto(proto),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_is_checked(tmp_path, form):
    assert open_any(form(onnx.parser.parse_model(GOOD), tmp_path)).source.fault() == ""
    with pytest.raises(DovetailError, match=r"node 'relu' \(Relu\) has an attribute 'k', which Relu-14 does not know"):
        compile(form(onnx.parser.parse_model(BAD), tmp_path), ["host"])


def test_a_proto_is_not_changed():
    proto = onnx.parser.parse_model(GOOD.replace("float[2] x", "float[-1] x"))
    before = proto.SerializeToString()
    open_any(proto)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize("content", [b"", b"no model", b"\x0a"], ids=["nothing", "text", "cut short"])
def test_bytes_that_are_no_model(content):
    with pytest.raises(DovetailError, match="the model is not an ONNX model"):
        open_any(content)
