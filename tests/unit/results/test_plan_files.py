"""The text of plans: compact, readable by every YAML tool, edited by people, and never a trap for the reader."""

from pathlib import Path

import pytest
import yaml
from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail.planning import Join, Plan, PlannedBackend, PlannedNode, Remark, SourceNode
from dovetail_onnx.results.remark_file import grouped, ungrouped

NASTY = ["a b", "naïve", "\x7f", "\x85", "\x9b31m", "\u2028", "\ufeff", "\x1b[2J", '"', "\\", "yes", "1e3", "#", "a: b"]
NASTY += ["{}", "'", "'{}'", "😀", "- x", "null", "\t", "\n", "\r\n"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan_of(names):
    low, weights, high = map(Format.of, ("int8[symmetric]", "int8[symmetric,axis=0]", "float32"))
    ports = {"W": weights}
    nodes = [
        PlannedNode(name, f"{name}_out", f"key{i}", "Conv", "npu", low, "", (name, "bn"), i, "data", ports)
        for i, name in enumerate(names)
    ]
    remarks = [Remark("passed", name, "p", "r", f"'{name}' goes from a to b", ("x", name)) for name in names]
    remarks += [Remark("missed", name, "p", "q", "too large", (), "make it smaller", "npu.yaml:3") for name in names]
    remarks += [Remark("analysis", "", "p", "all", "of the model")]
    joins = [Join(name, high, low, "quantize", name, None) for name in names]
    return Plan(
        {"path": "m.onnx", "nodes": len(names)},
        [PlannedBackend("npu", "autocast")],
        nodes,
        joins,
        remarks=remarks,
        summary={"joins": 1},
        sources=[SourceNode(name, "Relu", f"folded into {name}") for name in names],
    )


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_names_with_anything_in_them_come_back(folder, ending):
    plan = plan_of(NASTY)
    plan.save(f"plan.{ending}")
    loaded = Plan.load(f"plan.{ending}")
    assert (loaded.nodes, loaded.joins, loaded.sources) == (plan.nodes, plan.joins, plan.sources)
    assert sorted(map(str, loaded.remarks)) == sorted(map(str, plan.remarks))


def test_every_yaml_tool_reads_the_same(folder):
    plan = plan_of(NASTY)
    plan.save("plan.yaml")
    text = Path("plan.yaml").read_text(encoding="utf-8")
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        data = yaml.load(text, loader)
        assert [row[0] for row in data["nodes"]] == NASTY
        assert [row[6]["ports"] for row in data["nodes"]] == [{"W": "int8[symmetric,axis=0]"}] * len(NASTY)


def test_remarks_with_one_reason_share_a_line():
    remarks = [Remark("passed", f"n{index}", "p", "r", "computed in bfloat16") for index in range(100)]
    lines = grouped(remarks)
    assert [len(line["nodes"]) for line in lines] == [40, 40, 20]
    assert lines[0]["nodes"][:2] == ["n0", "n1"]
    assert list(ungrouped(lines)) == remarks


def test_the_order_of_the_remarks_of_a_node_is_kept():
    """`a` gets the reason of `b` after one of its own, so it cannot join the line that `b` has opened before."""
    texts = [("b", "one"), ("a", "two"), ("a", "one"), ("b", "two"), ("a", "two"), ("b", "one")]
    remarks = [Remark("passed", node, "p", "r", why) for node, why in texts]
    back = list(ungrouped(grouped(remarks)))
    for node in "ab":
        assert [r.why for r in back if r.node == node] == [r.why for r in remarks if r.node == node]


HANDWRITTEN = """
# as a person writes it
version: 1
backends: [{name: npu}]
nodes:
  - {name: conv_1, output: y, backend: npu, precision: float16}   # one line
  - name: conv_2
    output: z
    backend: host
"""


def test_yaml_of_another_layout_is_read(folder):
    Path("plan.yaml").write_text(HANDWRITTEN)
    assert [(node.name, node.backend, str(node.precision)) for node in Plan.load("plan.yaml").nodes] == [
        ("conv_1", "npu", "float16"),
        ("conv_2", "host", "None"),
    ]


def test_a_plan_that_a_yaml_tool_has_written_again_is_read(folder):
    plan = plan_of(NASTY[:8])
    plan.save("plan.yaml")
    Path("again.yaml").write_text(yaml.safe_dump(yaml.safe_load(Path("plan.yaml").read_text(encoding="utf-8"))))
    assert Plan.load("again.yaml").nodes == plan.nodes


NODE = '["conv", "y", "Conv", "npu/float16", 0, "key"]'
MISTAKES = [
    # the text after the version, what is said
    (f"nodes:\n- {NODE}\n- [conv]\n", "plan.yaml:4: node 'conv': 1 values instead of 4 to 7"),
    ("nodes:\n- [1, y, Conv, npu]\n", "plan.yaml:3: node '1': 1 is not a string"),
    ("nodes:\n- [conv, y, Conv, npu, zero]\n", "plan.yaml:3: node 'conv': region 'zero' is not an integer"),
    ("nodes:\n- [conv, y, Conv, npu, 0, key, {porst: {}}]\n", "plan.yaml:3: node 'conv': unknown key 'porst'"),
    ("nodes:\n- [conv, y, Conv, npu, 0, key, {ports: [W]}]\n", "plan.yaml:3: node 'conv': ports must map"),
    ("nodes:\n- conv\n", "plan.yaml:3: 'conv' is not a node"),
    ("nodes:\n- {name: conv, output: y, backend: npu\n\n", "plan.yaml:5"),
    ("nodes: {}\njoins:\n- [x]\n", "plan.yaml:4: 1 values instead of 5 or 6"),
    (
        'nodes:\n- [conv, y, Conv, "npu/int8[symetric]"]\n',
        "plan.yaml:3: node 'conv': 'int8[symetric]': 'symetric' is no scheme",
    ),
    ("joins:\n- [x, float61, float32, cast, y]\n", "plan.yaml:3: 'float61': there is no element type 'float61'"),
    ("nodes: []\nnodes: []\n", "plan.yaml:3: 'nodes' is a duplicate key"),
    ("backends: [npu]\n", "an entry of 'backends' is malformed"),
    ("backends: [{name: npu, options: {cores: 2}}]\n", "an entry of 'backends' is malformed"),
    ("nodes:\n- {name: conv, output: y, backend: npu, origin: bn}\n", "origin 'bn' is not a list of names"),
    ("remarks:\n- {kind: passed}\n", "a remark is malformed"),
    ("remarks:\n- {kind: passed, pass: p, nodes: [[a, 1]]}\n", "is not a node of a remark"),
    ("model: &a {x: *a}\n", "plan.yaml:2: anchors and aliases are not supported"),
    ("summary: 2026-99-99\n", "plan.yaml:2"),
]


@pytest.mark.parametrize(("text", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes_are_told_with_their_line(folder, text, says):
    Path("plan.yaml").write_text("version: 2\n" + text)
    with pytest.raises(DovetailError) as caught:
        Plan.load("plan.yaml")
    assert says in caught.value.message


DEEP = 100_000
TRAPS = {
    # each of them ended the process or did not end
    "brackets": "nodes: " + "[" * DEEP,
    "closed brackets": "nodes:\n- " + "[" * DEEP + "]" * DEEP,
    "brackets between quotes": "nodes:\n- {a: it's, " + "[" * DEEP + ", b: it's}",
    "dashes": "nodes:\n" + "- " * DEEP,
    "mappings": "nodes:\n" + "- {a: " * DEEP,
    "indents": "model:\n" + "".join(" " * depth + "a:\n" for depth in range(1, 2000)),
    "a list that is no JSON": "nodes: [" + "a, " * 3_000_000 + "b]",
    "entries that are no JSON": "nodes:\n" + "- a\n" * 1_000_000,
    "another layout": "model:\n  a:\n" + "    b: 1\n" * 1_000_000,
    "a number": "nodes:\n- [conv, y, Conv, npu, " + "9" * 100_000 + "]",
    "control characters": "nodes:\n- [\x00\x01, y]",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_no_plan_is_a_trap(folder, trap):
    Path("plan.yaml").write_text("version: 2\n" + TRAPS[trap])
    with pytest.raises(DovetailError, match=r"^plan.yaml:\d+: "):
        Plan.load("plan.yaml")


@pytest.mark.parametrize("text", ["[" * DEEP, '{"version": 2, "nodes": ' + "[" * DEEP, "{", "3"])
def test_json_plans_that_are_none(folder, text):
    Path("plan.json").write_text(text)
    with pytest.raises(DovetailError, match=r"^plan.json"):
        Plan.load("plan.json")


def test_a_large_plan_is_small_on_disk(folder):
    """A hundred bytes for a node with its reason, beyond its names."""
    names, low = [f"n{index}" for index in range(10_000)], Format.of("bfloat16")
    reason = ("passed", "assign-types", "policy-pass", "bfloat16, the type of its input")
    plan = Plan(nodes=[PlannedNode(n, f"{n}o", "0123456789ab", "Relu", "cpu-bf16", low, region=0) for n in names])
    kind, pass_, rule, why = reason
    plan.remarks = [Remark(kind, name, pass_, rule, why, (name,), "", "cpu_bf16.yaml:55") for name in names]
    plan.save("plan.yaml")
    assert Path("plan.yaml").stat().st_size < 110 * len(names)
