"""Who says what: unlisted < group < named operator < variant < the file that extends."""

import pytest
from dovetail_schemas import load_backend


def role(backend, op_type="Conv"):
    return backend.rule("", op_type).role


def test_a_named_operator_stands_above_its_group_and_the_unlisted(load):
    backend = load("""
groups: {g: [Conv, Relu]}
unlisted: {role: manual, policy: pass, note: anything}
ops:
  $g: {role: passive, policy: fp32}
  Conv: {role: active}
""")
    conv, relu, exp = (backend.rule("", op_type) for op_type in ("Conv", "Relu", "Exp"))
    assert (conv.role, conv.policy, conv.note) == ("active", "fp32", "anything")
    assert (relu.role, relu.policy) == ("passive", "fp32")
    assert (exp.role, exp.policy, exp.listed, exp.status) == ("manual", "pass", False, "ok")
    assert (conv.source, relu.source, exp.source) == ("x.yaml:9", "x.yaml:8", "x.yaml:6")


def test_what_is_not_listed_is_refused_unless_the_file_says_otherwise(load):
    assert load("ops: {Conv: {}}").rule("", "Relu").status == "refuse"
    assert load("unlisted: forbid").rule("", "Relu").status == "forbid"
    assert load("unlisted: {}").rule("", "Relu").status == "ok"
    assert load("unlisted: refuse\nops: {Conv: {}}").rule("", "Conv").status == "ok"


def test_shape_limits_and_rows_are_one_key(load):
    backend = load("""
unlisted: {policy: pass, limits: {outputs: 1}}
ops:
  Conv: {shape: {X: N C H W}}
  Relu: {rows: [{when: {X.rank: 4}}]}
  Exp: {role: active}
""")
    limits = {op: [str(li) for row in backend.rule("", op).rows for b in row.blocks for li in b.limits]
              for op in ("Conv", "Relu", "Exp")}  # fmt: skip
    assert limits == {"Conv": [], "Relu": [], "Exp": ["outputs: 1"]}
    assert backend.rule("", "Relu").policy == "pass"


VARIANT = """
options: {{size: [small, large]}}
ops:
  Conv: {{role: active, policy: pass, {below}}}
variants:
  - {{when: {{size: large}}, ops: {{Conv: {{{above}}}}}}}
"""
SHAPE, ROWS = "shape: {W: M C KH KW}", "rows: [{when: {group: 1}}]"


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        (f"{SHAPE}, limits: {{KH: 1..7, KW: 1..7}}", "limits: {KH: 1..15}", ("W: M C KH KW", "", "KH: 1..15")),
        (f"{SHAPE}, limits: {{KH: 1..7}}", "policy: pass", ("W: M C KH KW", "", "KH: 1..7")),
        (f"{SHAPE}, limits: {{KH: 1..7}}", "shape: {W: M C H W}", ("W: M C H W", "", "")),
        (f"{SHAPE}, limits: {{KH: 1..7}}", ROWS, ("", "group: 1", "")),
        (ROWS, "limits: {group: 1..2}", ("", "", "group: 1..2")),
        (ROWS, SHAPE, ("W: M C KH KW", "", "")),
        ("limits: {group: 1}", "limits: {}", ("", "", "")),
    ],
)
def test_what_a_variant_replaces(below, above, expected, load):
    """Its limits replace the limits, and the rest of the rule stays; a shape takes the limits with it that use it."""
    rule = load(VARIANT.format(below=below, above=above), options={"size": "large"}).rule("", "Conv")
    (row,) = rule.rows
    limits = ", ".join(str(limit) for block in row.blocks for limit in block.limits)
    assert (", ".join(map(str, row.patterns)), str(row.when), limits) == expected
    assert (rule.role, rule.policy) == ("active", "pass")


OPTIONS = """
options: {march: [a, b, c], version: ["8.6", "10", "9"]}
ops: {Conv: {role: active, policy: pass}}
variants:
  - {when: {march: [b, c]}, ops: {Conv: {role: passive}}}
  - {when: {march: c}, ops: {Conv: {role: manual}}, opset: 20..21}
  - {when: {version: 9..}, summary: new}
"""


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [({}, "active"), ({"march": "b"}, "passive"), ({"march": "c"}, "manual")],
)
def test_variants_are_laid_over_in_order(chosen, expected, load):
    backend = load(OPTIONS, options=chosen)
    assert (role(backend), backend.policy("", "Conv")) == (expected, "pass")
    assert backend.opset == ((20, 21) if expected == "manual" else (22, 22))
    assert backend.chosen["march"] == chosen.get("march", "a")  # the first is the default


IDLE = """
types: {q8: {dtype: int8, scheme: symmetric}, f: float32}
options: {scheme: [symmetric, asymmetric], engine: [a, b]}
ops: {Conv: {types: q8}}
variants:
  - {when: {scheme: asymmetric}, types: {TYPE}}
  - {when: {engine: b}, emit: {engines: [onnxruntime-cpu]}}
"""


@pytest.mark.parametrize(
    ("type_", "idle"),
    [
        ("q8: {dtype: int8, scheme: asymmetric}", {"scheme", "engine"}),
        ("q8: {dtype: [int8, int16], scheme: symmetric}", {"engine"}),
        ("f: float16", {"engine"}),
        ("new: {dtype: int8, scheme: symmetric}", {"engine"}),
    ],
)
def test_options_that_change_no_placement(type_, idle, load):
    assert load(IDLE.replace("TYPE", type_)).idle_options == idle


UNUSED = """
types: {q8: {dtype: int8, scheme: symmetric}}
options: {weights: [none, int4], block: ["32", "64"], level: ["1", "4"]}
ops: {Conv: {types: q8}}
variants:
  - {when: {weights: int4}, summary: weights alone}
  - {when: {weights: int4, block: "64"}, summary: blocks of 64}
"""


@pytest.mark.parametrize(("weights", "unused"), [("none", {"block"}), ("int4", set())])
def test_options_that_need_another_one(weights, unused, load):
    """An option that no variant names may be read by a plugin."""
    assert load(UNUSED, options={"weights": weights}).unused_options == unused


@pytest.mark.parametrize(("version", "summary"), [("8.6", ""), ("9", "new"), ("10", "new")])
def test_versions_are_compared_part_by_part(version, summary, load):
    assert load(OPTIONS, options={"version": version}).summary == summary


def test_a_variant_in_a_file_of_its_own(load, tmp_path):
    (tmp_path / "x_b.yaml").write_text("ops: {Conv: {role: passive}}\n")
    text = "options: {march: [a, b]}\nops: {Conv: {role: active}}\nvariants: [{when: {march: b}, file: x_b.yaml}]"
    assert role(load(text)) == "active"
    backend = load(text, options={"march": "b"})
    assert (role(backend), backend.rule("", "Conv").source) == ("passive", "x_b.yaml:1")


def test_a_file_that_extends_has_the_last_word(write):
    write("summary: base\nops: {Conv: {role: active}, Exp: forbid, Log: {}}\nunlisted: {}\n", "base_file.yaml")
    path = write("backend: top\nextends: base-file\nops: {Conv: {policy: fp32}, Exp: {}, Log: refuse}\n", "top.yaml")
    backend = load_backend(path)
    assert (backend.name, backend.summary, backend.device, backend.source) == ("top", "base", "cpu", "top.yaml")
    assert (role(backend), backend.policy("", "Conv")) == ("active", "fp32")
    assert backend.rule("", "Exp").status == "ok"
    assert backend.rule("", "Log").status == "refuse"


def test_find_is_asked_before_the_neighborhood(write, tmp_path):
    other = tmp_path / "elsewhere.yaml"
    other.write_text("policy: {fp32: [Exp]}")
    write("policy: {pass: [Exp]}", "p.yaml")
    path = write("policies: p\nops: {Exp: {}}\n")
    assert load_backend(path).policy("", "Exp") == "pass"
    assert load_backend(path, find=lambda kind, name: other).policy("", "Exp") == "fp32"


def test_a_backend_overrides_a_policy_for_one_operator(load, write):
    write("policy: {pass: [Exp, Log]}\nkeep: {Resize: [scales]}", "p.yaml")
    backend = load("policies: p\nunlisted: {}\nops: {Exp: {policy: fp32}, Resize: {keep: [roi]}}")
    assert [backend.policy("", op) for op in ("Exp", "Log", "Conv")] == ["fp32", "pass", ""]
    assert backend.rule("", "Resize").keep == {"roi"}
    assert backend.rule("ai.onnx", "Log").policy == "pass"


def test_the_parts_of_a_file(load):
    backend = load("""
precision: {low: int8, high: float32, accumulate: int32}
types:
  f: [float16, float32]
  q: {dtype: [int8, int16], scheme: symmetric, granularity: channel, axis: 1, observer: kl, when: {region.last: true}}
  b: {dtype: int32, scale: X*W}
region: {limits: {outputs: ..2, nodes: 3..}, need: [Conv]}
border: {in: inside}
place: {strategy: roles, patience: 7}
emit: {engines: [one, two], artifacts: json}
""")
    assert (backend.low, backend.high, backend.accumulate) == ("int8", "float32", "int32")
    f, q, b = backend.types.values()
    assert (f.dtype, f.quantized) == (("float16", "float32"), False)
    assert (q.dtype, q.scheme, q.granularity, q.axis, str(q.observer)) == (
        ("int8", "int16"),
        "symmetric",
        "channel",
        1,
        "kl",
    )
    assert (str(q.when), b.scale, b.quantized) == ("region.last: true", "X*W", True)
    assert backend.border == ("inside", "outside", "low")
    assert (backend.strategy, backend.place) == ("roles", {"patience": 7})
    assert (backend.engines, backend.artifacts, backend.region.need) == (("one", "two"), ("json",), ("Conv",))
    counts = {"inputs": 1, "outputs": 3, "nodes": 3, "constants": 0}
    assert list(map(str, backend.region_refusals(counts, {"Conv", "Relu"}))) == [
        "outputs = 3; allowed: ..2 [x.yaml:10]"
    ]
    assert backend.region_refusals({**counts, "outputs": 2}, {"Conv"}) == ()
    assert list(map(str, backend.region_refusals({**counts, "outputs": 2, "nodes": 2}, {"Relu"}))) == [
        "nodes = 2; allowed: 3.. [x.yaml:10]",
        "it holds none of Conv [x.yaml:10]",
    ]


def test_names_are_looked_for_beside_the_file_that_uses_them(tmp_path):
    """A vendor's file may be called like the one that it extends, and knows nothing of that one's policies."""
    for folder in ("shared/backends", "shared/policies", "vendor"):
        (tmp_path / folder).mkdir(parents=True)
    base = tmp_path / "shared/backends/npu.yaml"
    base.write_text("backend: npu\ndevice: npu\nopset: 22\npolicies: p\nunlisted: {}\n")
    (tmp_path / "shared/policies/p.yaml").write_text("policy: {fp32: [Exp]}")
    (tmp_path / "vendor/npu.yaml").write_text("backend: npu2\nextends: npu\n")
    backend = load_backend(tmp_path / "vendor/npu.yaml", lambda kind, name: base if kind == "backend" else None)
    assert (backend.name, backend.policy("", "Exp")) == ("npu2", "fp32")


DROPS = """
options: {size: [small, large]}
policies: fp16
precision: {low: float16, high: float32, accumulate: float32}
types: {f: [float16, float32], g: float32}
groups: {products: [Conv, Gemm]}
unlisted: {note: anything}
ops:
  $products: {types: f, role: active, policy: lower}
  Conv: {shape: {W: M C KH KW}, limits: {KH: 1..7}}
  Det: forbid
region: {count: 2, need: [Conv]}
place: {strategy: autocast, patience: 3}
variants: {when: {size: large}, DROPPED}
"""


def shape_and_limits(backend):
    (row,) = backend.rule("", "Conv").rows
    return str(row), sum(len(block.limits) for block in row.blocks)


@pytest.mark.parametrize(
    ("dropped", "of", "expected"),
    [
        ("policies: null", lambda backend: backend.policy("", "Exp"), ""),
        ("precision: {accumulate: null}", lambda backend: (backend.low, backend.accumulate), ("float16", None)),
        ("precision: null", lambda backend: (backend.low, backend.high), (None, None)),
        ("types: {g: null}", lambda backend: list(backend.types), ["f"]),
        ("region: {count: null}", lambda backend: (backend.region.count, backend.region.need), (0, ("Conv",))),
        ("region: null", lambda backend: (backend.region.count, backend.region.need), (0, ())),
        ("place: {patience: null}", lambda backend: backend.place, {}),
        ("unlisted: null", lambda backend: backend.rule("", "Exp").status, "refuse"),
        ("ops: {Conv: {limits: null}}", shape_and_limits, ("W: M C KH KW", 0)),
        ("ops: {Conv: {shape: null}}", shape_and_limits, ("any", 0)),
        ("ops: {Conv: {role: null}}", lambda backend: (role(backend), role(backend, "Gemm")), ("", "active")),
        ("ops: {$products: {role: null}}", lambda backend: (role(backend), role(backend, "Gemm")), ("", "")),
        ("ops: {Gemm: {note: null}}", lambda backend: [backend.rule("", op).note for op in ("Gemm", "Conv")],
         ["", "anything"]),
        ("ops: {Conv: null}", lambda backend: (role(backend), backend.rule("", "Conv").note), ("", "anything")),
        ("ops: {Det: null}", lambda backend: (backend.rule("", "Det").status, backend.lists("", "Det")), ("ok", False)),
    ],
)  # fmt: skip
def test_a_variant_drops_keys(dropped, of, expected, load, schemas):
    """What is not chosen keeps them."""
    text = DROPS.replace("DROPPED", dropped)
    find = lambda kind, name: schemas / f"policies/{name}.yaml"  # noqa: E731
    large, small = (load(text, options={"size": size}, find=find) for size in ("large", "small"))
    assert of(large) == expected
    assert of(small) != expected


def test_a_file_that_extends_another_drops_keys_of_it(write):
    write(
        "backend: base\ndevice: cpu\nopset: 22\nsummary: the base\nops: {Conv: {policy: lower, role: active}}\n",
        "base.yaml",
    )
    backend = load_backend(write("backend: top\nextends: base\nsummary: null\nops: {Conv: {role: null}}\n", "top.yaml"))
    assert (backend.summary, role(backend), backend.policy("", "Conv")) == ("", "", "lower")


def test_what_is_dropped_may_be_given_again(load):
    text = DROPS.replace(
        "variants: {when: {size: large}, DROPPED}",
        """variants:
  - {when: {size: large}, region: {count: null}, ops: {Conv: null}}
  - {when: {size: large}, region: {count: 7}, ops: {Conv: {role: passive}}}""",
    ).replace("policies: fp16\n", "")
    backend = load(text, options={"size": "large"})
    assert (backend.region.count, role(backend), backend.policy("", "Conv")) == (7, "passive", "")
