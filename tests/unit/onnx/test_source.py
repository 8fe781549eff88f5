"""The source check: files that are wrong, each with what is said of it, and files that are only unusual."""

import onnx
import onnx.parser
import onnx_ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Model
from dovetail_onnx.dialect import OnnxDialect
from dovetail_onnx.opening import open_model, open_proto, open_text
from onnx import TensorProto, helper

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'
BRANCHES = """g (float[2] x, bool c) => (float[2] y) { [if] y = If (c) <
    then_branch = t () => (float[2] p) { p = Relu (x) },
    else_branch = e () => (float[2] q) { q = Neg (x) }> }"""
LOOP = """g (float[2] x, int64 n) => (float[2] y, float[K,2] all) { [loop] y, all = Loop (n, , x) <
    body = b (int64 i, bool k, float[2] v) => (bool k1, float[2] w, float[2] o) {
      k1 = Identity (k) w = Neg (v) o = Abs (v) }> }"""
SCAN = """g (float[2] s, float[3,2] xs) => (float[2] y, float[3,2] all) { [scan] y, all = Scan <num_scan_inputs = 1,
    body = b (float[2] h, float[2] e) => (float[2] g, float[2] o) { g = Add (h, e) o = Neg (e) }> (s, xs) }"""
FUNCTION = """<ir_version: 10, opset_import: ["": 22, "local": 1]>
    g (float[2] x) => (float[2] y) { [call] y = local.F (x) }
    <domain: "local", opset_import: ["": 22]> F (a) => (b) { [inside] b = Relu (a) }"""


def parsed(text=HEAD + "g (float[2] x) => (float[2] y) { [relu] y = Relu (x) }"):
    return onnx.parser.parse_model(text if text.lstrip().startswith("<") else HEAD + text)


def body_of(proto, node=0, attribute=0):
    return proto.graph.node[node].attribute[attribute].g


def attribute_of(proto, name):
    return next(a for node in proto.graph.node for a in node.attribute if a.name == name)


def edited(text, edit):
    proto = parsed(text)
    edit(proto)
    return proto


TEXTS = {
    "reads nothing": (
        "g (float[2] x) => (float[2] y) { [n] y = Add (x, z) }", "node 'n' (Add) reads 'z', which nothing"),
    "reads nothing in a body": (BRANCHES.replace("Neg (x)", "Neg (z)"), "Neg of 'q' reads 'z', which nothing defines"),
    "defined twice": (
        "g (float[2] x) => (float[2] y) { [a] y = Relu (x) [b] y = Neg (x) }",
        "node 'b' (Neg) defines 'y', which is defined already",
    ),
    "defines an input": (
        "g (float[2] x) => (float[2] x) { [a] x = Relu (x) }", "node 'a' (Relu) defines 'x', which is"),
    "a circle": (
        "g (float[2] x) => (float[2] y) { [a] u = Add (x, y) [b] y = Neg (u) }",
        "node 'a' (Add) reads 'y', which is computed from its own result",
    ),
    "a circle through a body": (
        """g (float[2] x, bool c) => (float[2] y) { [if] y = If (c) <
           then_branch = t () => (float[2] p) { p = Relu (z) }, else_branch = e () => (float[2] q) { q = Neg (x) }>
           [z] z = Neg (y) }""",
        "which is computed from its own result",
    ),
    "an unknown operator": (
        "g (float[2] x) => (float[2] y) { [n] y = Rellu (x) }", "is not an operator of ONNX (did you mean Relu"),
    "an operator of a later opset": (
        '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) { [n] y = Gelu (x) }',
        "is an operator of opset 20 or later; the model imports opset 13",
    ),
    "a domain that is not imported": (
        "g (float[2] x) => (float[2] y) { [n] y = com.acme.Magic (x) }",
        "is of domain 'com.acme', which the model does not import",
    ),
    "too few inputs": ("g (float[2] x) => (float[2] y) { [n] y = Add (x) }", "has 1 inputs; Add takes 2"),
    "too many outputs": ("g (float[2] x) => (float[2] y) { [n] y, z = Relu (x) }", "has 2 outputs; Relu gives 1"),
    "a needed input left out": ("g (float[2] x) => (float[2] y) { [n] y = Add (, x) }", "leaves out its input 'A'"),
    "a blank among inputs of any number": (
        "g (float[2] x) => (float[2] y) { [n] y = Sum (x, , x) }", "leaves out its input 'data_0'"),
    "a blank among inputs of ONNX Runtime's operators": (
        """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
           g (uint8[2] x, float s, uint8 z) => (uint8[4] y) {
               [n] y = com.microsoft.QLinearConcat <axis = 0> (s, z, x, s, , x, s, z) }""",
        "leaves out its input 'inputs'",
    ),
    "an unknown attribute": (
        "g (float[2] x) => (float[2] y) { [n] y = Softmax <axes = 0> (x) }",
        "has an attribute 'axes', which Softmax-13 does not know (did you mean 'axis'?)",
    ),
    "an attribute of another type": (
        "g (float[2] x) => (float[2] y) { [n] y = Softmax <axis = 0.5> (x) }",
        "has an attribute 'axis' of FLOAT; Softmax wants INT",
    ),
    "an axis that no tensor has": (
        "g (float[2] x) => (float[2] y) { [n] y = LayerNormalization <axis = 9223372036854775807> (x, x) }",
        "attribute 'axis' names an axis that no tensor has",
    ),
    "a number of axes below zero": (
        "g (float[2,3] x, int64[1,1] i) => (float[1,3] y) { [n] y = GatherND <batch_dims = -1> (x, i) }",
        "attribute 'batch_dims' names an axis that no tensor has",
    ),
    "a number of outputs that is not theirs": (
        "g (float[4] x) => (float[2] y) { [n] y, z = Split <num_outputs = 1> (x) }",
        "says that it has 1 outputs, and has 2",
    ),
    "a boolean of another value": (
        "g (float[4] x) => (float16[4] y) { [n] y = Cast <to = 10, saturate = 2> (x) }",
        "has a 'saturate' of 2, and ONNX knows 0 and 1",
    ),
    "fewer places than n-grams": (
        "g (int32[4] x) => (float[2] y) { [n] y = TfIdfVectorizer <max_gram_length = 2, max_skip_count = 0, "
        'min_gram_length = 1, mode = "TF", ngram_counts = [0, 2], ngram_indexes = [0, 1], '
        "pool_int64s = [5, 6, 5, 6, 7, 8]> (x) }",
        "has 2 'ngram_indexes' for 4 n-grams",
    ),
    "a missing attribute": ("g (float[2] x) => (float16[2] y) { [n] y = Cast (x) }", "lacks the attribute 'to'"),
    "an output that is not defined": (
        "g (float[2] x) => (float[2] z) { y = Relu (x) }", "output 'z' of the graph is not"),
    "a branch that gives what stands outside": (
        BRANCHES.replace("(float[2] q) { q = Neg (x) }", "(float[2] x) { q = Neg (x) }"),
        "output 'x' of graph 'e' is a value from outside",
    ),
    "a function that calls itself": (
        FUNCTION.replace("Relu (a)", "local.F (a)").replace('"": 22]> F', '"": 22, "local": 1]> F'),
                                     "function 'F' calls itself"),
    "a function that reads nothing": (
        FUNCTION.replace("Relu (a)", "Relu (z)"), "'inside' (Relu) of function 'F' reads 'z'"),
    "a function with too many inputs": (FUNCTION.replace("F (x)", "F (x, x)"), "has 2 inputs; its function takes 1"),
    "a call without what the function needs": (
        FUNCTION.replace("F (x)", "F ()"), "leaves out input 'a', which its function"),
    "an opset of the future": (
        HEAD.replace("22", "999") + "g (float[2] x) => (float[2] y) { y = Relu (x) }", "imports opset 999"),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS.values(), ids=TEXTS)
def test_what_is_wrong_in_a_file_is_said_of_the_file(case):
    text, says = case
    with pytest.raises(DovetailError) as caught:
        open_text(text if text.startswith("<") else HEAD + text, "m.onnxtxt")
    assert caught.value.message.startswith("m.onnxtxt: ")
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def drop_body(name):
    def edit(proto):
        node = proto.graph.node[0]
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)

    return edit


def deep(levels):
    """Branches within branches."""
    output = [helper.make_tensor_value_info("y", 1, [2])]
    graph = flat = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], output)
    for _ in range(levels):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=flat)
        graph = helper.make_graph([node], "g", [], output)
    return graph


EDITS = {
    "no IR version": (None, lambda p: p.ClearField("ir_version"), "states no IR version"),
    "an IR version of the future": (None, lambda p: setattr(p, "ir_version", 99), "IR version 99 is newer than onnx"),
    "no opset": (
        None, lambda p: p.ClearField("opset_import"), "is of the default domain, which the model does not import"),
    "opset 0": (None, lambda p: setattr(p.opset_import[0], "version", 0), "opset 0, which is not a valid version"),
    "an impossible version": (
        None, lambda p: p.opset_import.add(domain="com.microsoft", version=2**62), "which is not a valid version"),
    "two opsets": (None, lambda p: p.opset_import.add(domain="ai.onnx", version=13), "twice, in versions 22 and 13"),
    "an input twice": (None, lambda p: p.graph.input.append(p.graph.input[0]), "the graph has two inputs called 'x'"),
    "an input without a name": (None, lambda p: p.graph.input.add(type=p.graph.input[0].type), "input without a name"),
    "an input without a type": (None, lambda p: p.graph.input[0].ClearField("type"), "input 'x' declares no type"),
    "an input of no element type": (
        None, lambda p: p.graph.input[0].type.tensor_type.ClearField("elem_type"), "without an element type"),
    "an unknown element type": (
        None, lambda p: setattr(p.graph.input[0].type.tensor_type, "elem_type", 77), "that ONNX does not know (77)"),
    "an initializer twice": (
        None, lambda p: p.graph.initializer.extend([helper.make_tensor("w", 1, [1], [0.0])] * 2),
        "the graph has two initializers called 'w'"),
    "an output without a name": (None, lambda p: p.graph.output.add(), "an output of the graph has no name"),
    "an extent whose name is not UTF-8": (
        None, lambda p: p.graph.input[0].type.tensor_type.shape.dim.add().MergeFromString(b"\x12\x03\xff\xfe\xfd"),
        "dim.dim_param is not UTF-8"),
    "a document string that is not UTF-8": (
        None, lambda p: p.graph.node[0].MergeFromString(b"\x32\x03\xff\xfe\xfd"), "graph.node.doc_string is not UTF-8"),
    "an attribute that is not UTF-8": (
        "g (float[2] x) => (float[2] y) { [n] y = com.microsoft.Gelu <k = \"a\"> (x) }",
        lambda p: (setattr(attribute_of(p, "k"), "s", b"\xff"), p.opset_import.add(domain="com.acme", version=1),
                   setattr(p.graph.node[0], "domain", "com.acme")), "an attribute holds text that is not UTF-8"),
    "devices that nobody declares": (
        None,
        lambda p: p.graph.node[0].device_configurations.add(configuration_id="two"),
        "is meant for devices 'two', which the model does not declare",
    ),
    "no operator": (None, lambda p: p.graph.node[0].ClearField("op_type"), "names no operator"),
    "text that is not UTF-8": (
        None, lambda p: p.graph.MergeFromString(b"\x0a\x05\x0a\x03\xff\xfe\xfd"), "is not UTF-8"),
    "no then_branch": (BRANCHES, drop_body("then_branch"), "lacks the attribute 'then_branch', which If needs"),
    "a branch with inputs": (
        BRANCHES, lambda p: body_of(p).input.append(p.graph.input[0]), "with 1 inputs, where none is taken"),
    "a branch with two outputs": (
        BRANCHES, lambda p: body_of(p).output.append(body_of(p).output[0]), "has 1 outputs, and a body"),
    "a body that is a number": (
        BRANCHES, lambda p: p.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("then_branch", 1)),
        "attribute 'then_branch' of INT; If wants GRAPH"),
    "a body that is empty": (
        BRANCHES, lambda p: p.graph.node[0].attribute[0].ClearField("g"), "is GRAPH and holds no value"),
    "a body renamed": (
        LOOP, lambda p: setattr(p.graph.node[0].attribute[0], "name", "scan"), "which Loop-21 does not know"),
    "a body with too few inputs": (LOOP, lambda p: body_of(p).input.pop(), "its body takes 3 inputs, not 2"),
    "a body with too few outputs": (LOOP, lambda p: body_of(p).output.pop(), "a body with at least 3 outputs"),
    "a scan of too much": (
        SCAN, lambda p: setattr(attribute_of(p, "num_scan_inputs"), "i", 5), "scans 5 of its 2 inputs"),
    "a scan body of another size": (
        SCAN, lambda p: attribute_of(p, "body").g.output.pop(), "has 2 outputs, and a body"),
    "an attribute of two values": (
        SCAN, lambda p: setattr(attribute_of(p, "num_scan_inputs"), "f", 1.0), "is INT and holds f, i"),
    "an attribute without a type": (
        SCAN, lambda p: attribute_of(p, "num_scan_inputs").ClearField("type"), "wants INT"),
    "two attributes of one name": (
        SCAN, lambda p: p.graph.node[0].attribute.append(attribute_of(p, "num_scan_inputs")),
        "two attributes called 'num_scan_inputs'"),
    "a reference outside of functions": (
        "g (float[2] x) => (float[2] y) { [n] y = Softmax <axis = 0> (x) }",
        lambda p: setattr(attribute_of(p, "axis"), "ref_attr_name", "a"), "stands in none"),
    "bodies too deep": (
        "g (float[2] x, bool c) => (float[2] y) { y = Identity (x) }",
        lambda p: p.graph.node[0].CopyFrom(deep(27).node[0]), "nested deeper than 24 levels"),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS.values(), ids=EDITS)
def test_what_only_a_damaged_file_holds(tmp_path, case):
    text, edit, says = case
    proto = edited(text or HEAD + "g (float[2] x) => (float[2] y) { [relu] y = Relu (x) }", edit)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(DovetailError) as caught:
        open_model(path)
    assert caught.value.message.startswith(str(path))
    assert says in caught.value.message


def test_several_problems_are_counted():
    text = HEAD + "g (float[2] x) => (float[2] y) { a = Relu (u)  b = Neg (v)  y = Add (a, w) }"
    with pytest.raises(DovetailError, match=r"Relu of 'a' reads 'u', which nothing defines \(and 2 more problems\)"):
        open_text(text, "m")


def test_control_characters_in_names_do_not_reach_the_message():
    proto = parsed("g (float[2] x) => (float[2] y) { [n] y = Relu (z) }")
    proto.graph.node[0].name = "\x1b[2Jn\r\nerror: all fine"
    with pytest.raises(DovetailError) as caught:
        open_proto(proto)
    assert r"node '\x1b[2Jn\r\nerror: all fine' (Relu) reads 'z'" in caught.value.message


UNUSUAL = {
    "out of order": "g (float[2] x) => (float[2] y) { y = Neg (a)  a = Relu (x) }",
    "a name that hides another": BRANCHES.replace("float[2] p) { p =", "float[2] x) { x ="),
    "no node names": "g (float[2] x) => (float[2] y) { y = Relu (x) }",
    "an initializer among the inputs": (
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }"
    ),
    "an operator that only ONNX Runtime has in the default domain": (
        "g (float[2] x) => (float[2] y) <float[2] s = {1, 1}> { y = SimplifiedLayerNormalization (x, s) }"
    ),
    "a loop": LOOP,
    "a scan": SCAN,
    "a function": FUNCTION,
    "an operator of a domain that nobody describes": (
        HEAD.replace("22", '22, "com.acme": 1') + "g (float[2] x) => (float[2] y) { y = com.acme.A <k = 1> (x) }"
    ),
    "a dimension below zero": "g (float[-1,2] x) => (float[-1,2] y) { y = Relu (x) }",
}


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_repaired_later_is_accepted(text):
    assert open_proto(parsed(text)).source.fault() == ""


def test_extents_below_zero_are_open():
    assert open_proto(parsed(UNUSUAL["a dimension below zero"])).graph.inputs[0].shape[0].value is None


@pytest.mark.parametrize("name", ["?", "None", "-1"])
def test_extents_whose_name_is_a_placeholder_are_not_equal(name):
    """As paddle2onnx wrote height and width of pictures."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (bool c, float[N,H,W] x) => (float[N,H,W] y) {
            y = If (c) <
                then_branch = yes () => (float[N,H,W] a) { a = Neg (x) },
                else_branch = no () => (float[N,H,W] b) { b = Relu (x) }
            >
        }"""
    )
    for graph in (proto.graph, *(attribute.g for attribute in proto.graph.node[0].attribute)):
        for info in (*graph.input[1:], *graph.output):
            for dim in info.type.tensor_type.shape.dim[1:]:
                dim.dim_param = name
    model = open_proto(proto)
    given = [[str(extent) for extent in value.shape] for value in (*model.graph.inputs[1:], *model.graph.outputs)]
    assert given == [["N", "None", "None"]] * 2


def test_a_model_of_any_size_is_checked_in_one_walk():
    """20,000 nodes in a chain of calls, deeper than Python's stack."""
    functions = [
        helper.make_function("local", f"F{n}", ["a"], ["b"],
                             [helper.make_node(f"F{n + 1}" if n < 5000 else "Relu", ["a"], ["b"],
                                               domain="local" if n < 5000 else "")],
                             [helper.make_opsetid("", 22), helper.make_opsetid("local", 1)])
        for n in range(5001)
    ]  # fmt: skip
    proto = parsed(FUNCTION.replace("local.F (x)", "local.F0 (x)").replace("F (a)", "Unused (a)"))
    proto.functions.extend(functions)
    assert open_proto(proto).interface() == (["x"], ["y"])


def test_functions_that_expand_without_end_are_counted_before_they_are_inlined():
    proto = parsed(FUNCTION.replace("local.F (x)", "local.F40 (x)"))
    for n in range(41):
        name, domain = (f"F{n - 1}", "local") if n else ("Relu", "")
        nodes = [helper.make_node(name, [a], [b], domain=domain) for a, b in (("a", "t"), ("t", "b"))]
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid("local", 1)]
        proto.functions.append(helper.make_function("local", f"F{n}", ["a"], ["b"], nodes, opsets))
    with pytest.raises(DovetailError, match=r"function 'F17' expands to 262144 nodes .* the limit is 250000 nodes"):
        open_proto(proto)


@pytest.mark.parametrize("bracket", "({[<")
def test_text_with_brackets_without_end_is_refused(bracket):
    with pytest.raises(DovetailError, match="brackets are nested deeper than 200 levels"):
        open_text(HEAD + "g (float[2] x) => (float[2] y) { y = Relu " + bracket * 100_000, "m")


@pytest.mark.parametrize("kind", ["sequence", "optional"])
def test_types_without_end_are_refused(kind):
    proto = parsed()
    inner = proto.graph.input[0].type
    for _ in range(12):
        outer = onnx.TypeProto()
        getattr(outer, f"{kind}_type").elem_type.CopyFrom(inner)
        inner = outer
    proto.graph.input[0].type.CopyFrom(inner)
    with pytest.raises(DovetailError, match="nested deeper than 8 levels"):
        open_proto(proto)


def test_a_file_nested_deeper_than_protobuf_reads_is_refused(tmp_path):
    graph = b""
    for _ in range(60):  # a graph that holds a node that holds an attribute that holds a graph
        attribute = b"\x32" + onnx_length(graph) + graph
        node = b"\x2a" + onnx_length(attribute) + attribute
        graph = b"\x0a" + onnx_length(node) + node
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x0a\x3a" + onnx_length(graph) + graph + b"\x42\x02\x10\x16")
    with pytest.raises(DovetailError, match="nested deeper than protobuf reads"):
        open_model(path)


def onnx_length(content):
    from dovetail_onnx.wire import varint

    return varint(len(content))


def test_models_built_in_memory_are_checked_too():
    model = onnx_ir.from_proto(parsed())
    model.graph[0].attributes["axis"] = onnx_ir.AttrInt64("axis", 1)
    with pytest.raises(DovetailError, match="^the model: node 'relu' .Relu. has an attribute 'axis'"):
        _ = Model(model, dialect=OnnxDialect()).source
    model.graph[0].outputs[0].name = None
    with pytest.raises(DovetailError, match="^the model: "):
        _ = Model(model, dialect=OnnxDialect()).source


def test_types_that_clash_are_found_when_they_are_asked_for():
    clash = open_proto(parsed("g (float[2] x, int64[2] n) => (float[2] y) { [add] y = Add (x, n) }"))
    assert "Add" in clash.source.fault()


def test_opening_takes_no_notice_of_what_the_proto_says_beside_the_graph():
    proto = parsed()
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    node = helper.make_node("Constant", [], ["k"], value=tensor)
    proto.training_info.add().algorithm.node.append(node)
    assert open_proto(proto).interface() == (["x"], ["y"])
