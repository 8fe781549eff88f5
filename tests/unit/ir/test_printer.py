"""The text of a model: the same every time, and it can be read back."""

import pytest
from dovetail.ir.opening import open_text
from dovetail.planning.placement import Placement, set_kind, set_placement

TEXT = """<ir_version: 10, opset_import: ["" : 22, "com.acme" : 1]>
g (float[N,8] x, bool c, int64 n) => (float[N,8] y, float z)
<
  float[2] k = {1.0, 2.5},
  int64 few = {3},
  float[3,3] w
>
{
  [a] p = Clip (x, , few)  # ?
  ["a b/c"] q, r = com.acme.Split <axis = 1, how = "fast", parts = [1, 2], ratio = 0.5> (p)  # ?, ?
  y = If (c) <  # float32[N,8]
    then_branch = t () => (float[N,8] t0)
    {
      t0 = Neg (q)  # float32[N,8]
    },
    else_branch = e () => (float[N,8] e0)
    {
      e0 = Constant <value = float[2] {1.0, 2.0}> ()  # float32[N,8]
    }
  >
  z = Sum (r, r)  # float32[]
}
"""


def test_what_is_printed_is_what_was_read():
    assert str(open_text(TEXT, "test")) == TEXT


def test_printing_is_stable():
    model = open_text(TEXT, "test")
    assert str(model) == str(model) == str(model.clone())


@pytest.mark.parametrize(
    ("placement", "kind", "comment"),
    [
        (None, "data", "# ?"),
        (Placement(), "data", "# ? @host"),
        (Placement("npu", "float16"), "data", "# ? @npu float16"),
        (Placement("npu", "float16", {"min": "int64", "max": "float32"}, 3), "data",
         "# ? @npu float16 max:float32 min:int64 region 3"),
        (Placement("npu"), "shape", "# ? @npu (shape)"),
    ],
)  # fmt: skip
def test_placements_stand_in_comments(placement, kind, comment):
    model = open_text(TEXT, "test")
    node = model.graph[0]
    set_placement(node, placement)
    set_kind(node, kind)
    line = next(line for line in str(model).splitlines() if "[a]" in line)
    assert line.endswith(comment)
    assert open_text(str(model), "again").graph[0].op_type == "Clip"
