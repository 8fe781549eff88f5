"""Outputs that depend on random numbers without a seed are called random, and their numbers are not compared."""

import dovetail
import numpy as np
import pytest
from dovetail.errors import UsageError
from dovetail_onnx.opening import open_text
from dovetail_transforms.canonicalize.open_values import open_outputs

HEAD = '<ir_version: 10, opset_import: ["": 22]>'
X = {"x": np.random.default_rng(0).standard_normal((4, 8), np.float32)}


def net(body, head=HEAD, tail=""):
    """A net with the outputs `y`, which `body` computes from `a`, and `z`, which does not depend on it."""
    return open_text(
        f"""{head} g (float[4,8] x, bool t) => (float[4,8] y, float[4,8] z)
        <float[8,8] w, float half = {{0.5}}, float zero = {{0}}, bool yes = {{1}}, bool no = {{0}}> {{
          [product] a = MatMul (x, w)
          {body}
          [second] z = MatMul (a, w)
        }} {tail}""",
        "net",
    )


NOISE = "[noise] n = RandomNormal <shape = [4, 8]{}> ()"
BODY = "{ [noise] n = RandomNormalLike (a) [sum] s = Add (a, n) }"


@pytest.mark.parametrize(
    ("body", "drawn"),
    [
        (f"{NOISE.format('')} [sum] y = Add (a, n)", "'noise' (RandomNormal)"),
        (f"{NOISE.format(', seed = 1.0')} [sum] y = Add (a, n)", None),
        ("[noise] n = RandomUniformLike (a) [s] m = Mul (a, n) [r] y = Relu (m)", "'noise' (RandomUniformLike)"),
        ("[p] p = Sigmoid (a) [drawn] y = Bernoulli (p)", "'drawn' (Bernoulli)"),
        ("[drop] y = Dropout (a, half, yes)", "'drop' (Dropout)"),
        ("[drop] y = Dropout (a, half, t)", "'drop' (Dropout)"),
        ("[drop] y = Dropout (a, half, no)", None),
        ("[drop] y = Dropout (a, zero, yes)", None),
        ("[drop] y = Dropout (a, half)", None),
        ("[drop] y = Dropout <seed = 3> (a, half, yes)", None),
        (f"{NOISE.format('')} [extents] s = Shape (n) [r] y = Reshape (a, s)", None),
        (
            "[if] y = If (t) <then_branch = b () => (float[4,8] s) "
            + BODY
            + ", else_branch = c () => (float[4,8] e) { [same] e = Identity (a) }>",
            "'noise' (RandomNormalLike)",
        ),
    ],
)
def test_outputs_that_depend_on_random_numbers(body, drawn):
    assert open_outputs(net(body)) == ({} if drawn is None else {"y": f"random, because {drawn} has no seed"})


def test_functions_that_call_functions():
    head = '<ir_version: 10, opset_import: ["": 22, "own": 1]>'
    tail = """
    <domain: "own", opset_import: ["": 22]> inner (v) => (r) { [noise] n = RandomNormalLike (v) r = Add (v, n) }
    <domain: "own", opset_import: ["": 22, "own": 1]> outer (v) => (r) { r = own.inner (v) }
    """
    assert list(open_outputs(net("[call] y = own.outer (a)", head, tail))) == ["y"]


def randomized():
    return net(f"{NOISE.format('')} [sum] y = Add (a, n)")


def test_the_headline_says_that_the_output_is_random():
    result = dovetail.compile(randomized(), "cpu-bf16", data={**X, "t": np.array(True)})
    y, z = result.verification.outputs
    assert y.snr_db is None and y.line() == "y: random, because 'noise' (RandomNormal) has no seed"
    assert z.snr_db > 30 and not result.verification.warnings
    assert result.summary().endswith("; 1 output not compared, such as 'y'")


def test_goals_are_judged_on_the_other_outputs():
    data = {**X, "t": np.array(True)}
    assert dovetail.compile(randomized(), "cpu-bf16", data=data, min_snr=30).verification.missed == []


def test_a_goal_for_random_outputs_alone_is_an_error():
    model = open_text(f"{HEAD} g () => (float[4,8] y) {{ {NOISE.format('')} [r] y = Relu (n) }}", "net")
    with pytest.raises(UsageError, match="'y' is random, because 'noise' \\(RandomNormal\\) has no seed"):
        dovetail.verify(model, dovetail.compile(model, "cpu-bf16"), [{}], min_snr=30)


def test_rows_in_no_use_of_a_cache_are_not_compared():
    """ONNX Runtime's kernel leaves them as the memory was."""
    text = """<ir_version: 10, opset_import: ["": 22, "com.microsoft": 1]>
    g (float[1,S,8] q, float[1,S,4] k, float[1,S,4] v, float[1,1,4,4] past_k, float[1,1,4,4] past_v, int32[1] rows,
       int32 t) => (float[1,S,8] y, float[1,1,4,4] kept_k, float[1,1,4,4] kept_v) {
        [attend] y, kept_k, kept_v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1,
          local_window_size = 3, sliding_window_cache = 1> (q, k, v, past_k, past_v, rows, t) }"""
    why = "open in part, because 'attend' (GroupQueryAttention) leaves rows in no use unset"
    assert open_outputs(open_text(text, "net")) == {"kept_k": why, "kept_v": why}
