"""What the limits of `bpu-int8` ask of nodes beyond extents and attributes."""

import pytest
from dovetail_bpu_int8 import facts
from dovetail_onnx.opening import open_text

CASES = [
    ("residual_add", "Conv", "(float[1,4,8,8] x, float[1,4,8,8] z) => (float[1,4,8,8] y) <float[4,4,1,1] w> "
     "{ a = Conv (x, w) b = Relu (z) y = Add (a, b) }", True),
    ("residual_add", "Conv", "(float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w, float[1] c = {1.0}> "
     "{ a = Conv (x, w) y = Add (a, c) }", False),
    ("residual_add", "Conv", "(float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w> { y = Conv (x, w) }", False),
    ("zeros", "Mul", "(float[4] x) => (float[4] y) <float[4] c = {1.0, 0.0, 2.0, 0.0}> { y = Mul (x, c) }", 2),
    ("zeros", "Mul", "(float[4] x, float[4] z) => (float[4] y) { y = Mul (x, z) }", 0),
    ("first_extent", "Exp", "(float[3,7,5] x) => (float[3,7,5] y) { y = Exp (x) }", 3),
    ("largest_extent", "Exp", "(float[3,7,5] x) => (float[3,7,5] y) { y = Exp (x) }", 7),
    ("largest_extent", "Exp", "(float[3,n,5] x) => (float[3,n,5] y) { y = Exp (x) }", None),
    ("same_ranks", "MatMul", "(float[2,3,4] x, float[4,5] z) => (float[2,3,5] y) { y = MatMul (x, z) }", False),
    ("largest_matrix_extent", "MatMul", "(float[9,3,4] x, float[9,4,5] z) => (float[9,3,5] y) "
     "{ y = MatMul (x, z) }", 5),
    ("largest_batch_extent", "MatMul", "(float[9,3,4] x, float[9,4,5] z) => (float[9,3,5] y) "
     "{ y = MatMul (x, z) }", 9),
    ("changed_extents", "Tile", "(float[2,3] x) => (float[4,9] y) <int64[2] r = {2, 3}> { y = Tile (x, r) }", 2),
    ("changed_extents", "Expand", "(float[1,3] x) => (float[5,4,3] y) "
     "<int64[3] s = {5, 4, 3}> { y = Expand (x, s) }", 2),
    ("indivisible_parts", "Split", "(float[1,6] x) => (float[1,2] y, float[1,4] z) <int64[2] s = {2, 4}> "
     "{ y, z = Split <axis = 1> (x, s) }", 1),
    ("indivisible_parts", "Split", "(float[1,128] x) => (float[1,32] y, float[1,32] z, float[1,64] w) "
     "<int64[3] s = {32, 32, 64}> { y, z, w = Split <axis = 1> (x, s) }", 0),
    ("only_gemms_read", "Flatten", "(float[2,4,3,5] x) => (float[2,6] y) <float[60,6] w, float[2,60] a> "
     "{ a = Flatten (x) y = Gemm (a, w) }", True),
    ("only_gemms_read", "Flatten", "(float[2,4,3,5] x) => (float[2,6] y, float[2,60] a) <float[60,6] w> "
     "{ a = Flatten (x) y = Gemm (a, w) }", False),
    ("only_gemms_read", "Flatten", "(float[2,4,3,5] x) => (float[2,60] y) <float[2,60] a> "
     "{ a = Flatten (x) y = Relu (a) }", False),
    ("largest_size", "Exp", "(float[3,7,5] x) => (float[3,7,5] y) { y = Exp (x) }", 105),
    ("second_size", "Pow", "(float[3] x) => (float[3] y) <float[1] e = {2.0}> { y = Pow (x, e) }", 1),
    ("operands", "Sum", "(float[3] x, float[3] z) => (float[3] y) { y = Sum (x, z, x) }", 3),
    ("not_computed", "Add", "(float[3] x) => (float[3] y) { a = Relu (x) y = Add (x, a) }", 1),
    ("image_channels", "Gemm", "(float[2,4,3,5] x) => (float[2,6] y) <float[60,6] w, float[2,60] a> "
     "{ a = Flatten (x) y = Gemm (a, w) }", 4),
    ("image_height", "Gemm", "(float[2,4,3,5] x) => (float[2,6] y) <float[60,6] w, float[2,60] a> "
     "{ a = Flatten (x) y = Gemm (a, w) }", 3),
    ("image_width", "Gemm", "(float[2,60] x) => (float[2,6] y) <float[60,6] w> { y = Gemm (x, w) }", 1),
    ("broadcast_first_axis", "Add", "(float[2,3] x, float[3] z) => (float[2,3] y) { y = Add (x, z) }", True),
    ("broadcast_first_axis", "Mul", "(float[4,3] x, float z) => (float[4,3] y) { y = Mul (x, z) }", False),
    ("broadcast_first_axis", "Add", "(float[1,3] x, float[3] z) => (float[1,3] y) { y = Add (x, z) }", False),
    ("broadcast_operands", "Max", "(float[2,1] x, float[1,3] z) => (float[2,3] y) { y = Max (x, z) }", 2),
    ("merged_rank", "Add", "(float[2,3,4,5,1] x, float[2,1,4,5,6] z) => (float[2,3,4,5,6] y) { y = Add (x, z) }", 4),
    ("merged_rank", "Add", "(float[2,3,4,5,1] x, float[2,1,1,5,6] z) => (float[2,3,4,5,6] y) { y = Add (x, z) }", 5),
    ("listed_broadcast", "MatMul", "(float[7,5,3,4] x, float[7,1,4,2] z) => (float[7,5,3,2] y) "
     "{ y = MatMul (x, z) }", True),
    ("listed_broadcast", "MatMul", "(float[7,1,3,4] x, float[1,5,4,2] z) => (float[7,5,3,2] y) "
     "{ y = MatMul (x, z) }", False),
    ("listed_broadcast", "MatMul", "(float[1,1,3,4] x, float[7,5,4,2] z) => (float[7,5,3,2] y) "
     "{ y = MatMul (x, z) }", True),
    ("listed_broadcast", "MatMul", "(float[7,1,3,4] x, float[7,5,4,2] z) => (float[7,5,3,2] y) "
     "{ y = MatMul (x, z) }", False),
    ("listed_broadcast", "MatMul", "(float[2,7,5,3,4] x, float[2,1,5,4,2] z) => (float[2,7,5,3,2] y) "
     "{ y = MatMul (x, z) }", False),
    ("reduced_extent", "ReduceMax", "(float[2,3,5] x) => (float[2,1,5] y) "
     "<int64[1] a = {1}> { y = ReduceMax (x, a) }", 3),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "operator", "graph", "expected"), CASES)
def test_a_fact(fact, operator, graph, expected):
    model = open_text(f'<ir_version: 10, opset_import: ["": 21]>\ng {graph}', "m")
    node = next(node for node in model.graph if node.op_type == operator)
    found = getattr(facts, fact)
    assert found(node) == expected
