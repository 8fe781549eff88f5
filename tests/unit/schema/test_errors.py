"""What a mistake in a backend file reads like. The name before the first colon is the file, then comes the line."""

import pytest
from dovetail_schemas import RuleJudge, SchemaError, load_backend

HEAD = "backend: x\ndevice: cpu\nopset: 22\n"
CASES = {
    # names
    "operator.yaml:4: unknown operator 'Conv2d' (did you mean 'Conv'?)": HEAD + "ops: {Conv2d: {role: active}}",
    "attr.yaml:7: unknown name 'kernel_shap' in limits of Conv (did you mean 'kernel_shape'?)": HEAD
    + "ops:\n  Conv:\n    limits:\n      kernel_shap: 1..7",
    'role.yaml:5: role: "activ" is not one of "active", "passive" or "manual"': HEAD + "ops:\n  Conv: {role: activ}",
    "port.yaml:4: Resize has no port 'scale' (did you mean 'scales'?)": HEAD + "ops: {Resize: {types: {scale: int8}}}",
    "twice.yaml:5: 'Conv' is given twice (first on line 4)": "backend: x\ndevice: cpu\nops:\n"
    "  Conv: {role: active}\n  Relu, Conv: {role: active}\nopset: 22",
    "on.yaml:4: 'on' is true or false to some tools and a word to others; write true, false or quote it": HEAD
    + "ops: {Resize: {limits: {mode: on}}}",
    "flow_comma.yaml:4: 'H' has no limit (inside { } a comma ends a key; write one per line)": HEAD
    + "ops: {Relu: {shape: {X: N C H W}, limits: {H, W: ..1024}}}",
    "anchor.yaml:4: no anchors or aliases; give it a name under types: or groups:": HEAD + "types: &t {q: int8}",
    "option.yaml:4: unknown option 'mrch' (did you mean 'march'?)": "backend: x\ndevice: cpu\noptions: {march: [a]}\n"
    "variants: [{when: {mrch: a}}]\nopset: 22",
    "together.yaml:4: unknown option 'ner' (did you mean 'near'?)": "backend: x\ndevice: cpu\n"
    "options: {way: [a, b], near: [c, d]}\ninteracting: [[way, ner]]\nopset: 22",
    "alone.yaml:4: interacting: lists of two options and more are expected, as in [[runtime, weights]]": "backend: x\n"
    "device: cpu\noptions: {way: [a, b]}\ninteracting: [[way, way]]\nopset: 22",
    "code.yaml:7: one dot at most: \"__import__('os').system\"": HEAD
    + "ops:\n  Conv:\n    limits:\n      __import__('os').system: 1",
    # the rest of the YAML that is not allowed
    "alias.yaml:4: no anchors or aliases; give it a name under types: or groups:": HEAD + "types: *t",
    "merge.yaml:4: no merge keys ('<<'); give it a name under types: or groups:": HEAD + "types: {<<: {q: int8}}",
    "tag.yaml:3: no tags ('!'); plain words, numbers and quoted texts only": "backend: x\ndevice: cpu\n"
    "opset: !!python/name:os.system 22",
    "key.yaml:5: 'device' is given twice (first on line 2)": HEAD + "summary: s\ndevice: gpu",
    "list.yaml:1: file: 'key: value' pairs are expected": "- backend",
    "syntax.yaml:2: not YAML: mapping values are not allowed in this context": "backend: x\n b: c: d",
    "two.yaml:2: one document per file": "backend: x\n--- \nbackend: y",
    "empty.yaml:1: the file is empty": "",
    "comment.yaml:1: the file is empty": "# nothing yet\n",
    "deep.yaml:4: nested too deeply": HEAD + "place: {a: " + "[" * 30 + "]" * 30 + "}",
    # keys
    "no_name.yaml:1: key 'backend' is missing": "device: cpu\nopset: 22",
    "no_device.yaml:1: key 'device' is missing": "backend: x\nopset: 22",
    "no_opset.yaml:1: key 'opset' is missing": "backend: x\ndevice: cpu",
    "no_when.yaml:4: key 'when' is missing": HEAD + "variants: [{ops: {}}]",
    "no_dtype.yaml:4: key 'dtype' is missing": HEAD + "types: {q: {scheme: symmetric}}",
    "top.yaml:4: unknown key 'polices' in backend file (did you mean 'policies'?)": HEAD + "polices: fp16",
    "rule_key.yaml:4: unknown key 'limit' in Conv (did you mean 'limits'?)": HEAD + "ops: {Conv: {limit: {}}}",
    "row_key.yaml:4: unknown key 'wen' in rows of Conv (did you mean 'when'?)": HEAD
    + "ops: {Conv: {rows: [{wen: 1}]}}",
    "type_key.yaml:4: unknown key 'sheme' in type 'q' (did you mean 'scheme'?)": HEAD + "types: {q: {sheme: a}}",
    "emit_key.yaml:4: unknown key 'engine' in emit (did you mean 'engines'?)": HEAD + "emit: {engine: a}",
    "rows.yaml:4: Conv: rows hold their own shape and limits; write these inside the rows": HEAD
    + "ops: {Conv: {rows: [{policy: pass}], limits: {group: 1}}}",
    # words
    'status.yaml:4: Conv: "refused" is not one of "refuse" or "forbid", nor a mapping': HEAD + "ops: {Conv: refused}",
    'dynamic.yaml:4: dynamic: "maybe" is not one of "refuse", "accept" or "profile"': HEAD + "dynamic: maybe",
    "typed.yaml:4: unknown key 'typed' in precision": HEAD + "precision: {typed: strict}",
    "environments.yaml:4: unknown key 'environments' in emit (did you mean 'engines'?)": HEAD
    + "emit: {environments: {npu: /opt/npu}}",
    'policy.yaml:4: policy: "fp-32" is not one of "lower", "fp32", "promote", "pass", "fp32-accumulate", '
    '"fp32-round-trip", "follow-consumer", "recurse" or "none"': HEAD + "ops: {Conv: {policy: fp-32}}",
    "opset.yaml:3: opset: '11..10' is no version and no range of two versions (10..11)": "backend: x\ndevice: cpu\n"
    "opset: 11..10",
    "dtype.yaml:4: unknown dtype 'float23' (did you mean 'float32'?)": HEAD + "types: {f: [float16, float23]}",
    "type.yaml:5: unknown type 'q9' (did you mean 'q8'?)": HEAD + "types: {q8: int8}\nops: {Conv: {types: q9}}",
    "shadow.yaml:4: 'int8' is a dtype already; give the type another name": HEAD + "types: {int8: float16}",
    "group.yaml:5: unknown group 'contrl' (did you mean 'control'?)": HEAD
    + "groups: {control: [If]}\nops: {$contrl: forbid}",
    "member.yaml:4: unknown operator 'Iff' (did you mean 'If'?)": HEAD + "groups: {control: [Iff]}",
    "need.yaml:4: unknown operator 'conv' (did you mean 'Conv'?)": HEAD + "region: {need: [conv]}",
    "counts.yaml:4: unknown name 'output' in limits of region (did you mean 'outputs'?)": HEAD
    + "region: {limits: {output: ..32}}",
    "set.yaml:4: LayerNormalization has no attribute 'stash' (did you mean 'stash_type'?)": HEAD
    + "ops: {LayerNormalization: {set: {stash: 1}}}",
    "keep.yaml:4: Resize has no port 'scale' (did you mean 'scales'?)": HEAD + "ops: {Resize: {keep: [scale]}}",
    "fact.yaml:4: unknown name 'X.rnk' in limits of Conv (did you mean 'X.rank'?)": HEAD
    + "ops: {Conv: {limits: {X.rnk: 4}}}",
    "dotted.yaml:4: Conv has no port 'Z'": HEAD + "ops: {Conv: {limits: {Z.rank: 4}}}",
    "region.yaml:4: unknown name 'region.lst' in limits of Conv (did you mean 'region.last'?)": HEAD
    + "ops: {Conv: {limits: {region.lst: true}}}",
    "end.yaml:4: unknown name 'stride' in limits of Conv (did you mean 'strides'?)": HEAD
    + "ops: {Conv: {limits: {group: ..stride}}}",
    "unlisted.yaml:4: unknown name 'kernel_shape' in limits of unlisted operators": HEAD
    + "unlisted: {limits: {kernel_shape: 3}}",
    "value.yaml:5: unknown value 'b' of option 'march'; there are a": HEAD
    + "options: {march: [a]}\nvariants: [{when: {march: b}}]",
    # terms and ranges
    'string.yaml:4: only integers, names, + - * / // % ** and min, max, prod, len, align are allowed: "[1][0]"': HEAD
    + 'ops: {Conv: {limits: {"[1][0]": 1}}}',
    "call.yaml:4: unknown function 'mx' (did you mean 'max'?): \"mx(strides)\"": HEAD
    + "ops: {Conv: {limits: {mx(strides): 1}}}",
    "comparison.yaml:4: only integers, names, + - * / // % ** and min, max, prod, len, align are allowed: "
    '"group > 1"': HEAD + "ops: {Conv: {limits: {group > 1: true}}}",
    'term.yaml:4: not a term: "group +"': HEAD + "ops: {Conv: {limits: {group +: 1}}}",
    "reverse.yaml:4: '7..1' is empty: 7 is more than 1": HEAD + "ops: {Conv: {limits: {group: 7..1}}}",
    "endless.yaml:4: '..' has no end; leave the limit out if everything is allowed": HEAD
    + "ops: {Conv: {limits: {group: ..}}}",
    "dots.yaml:4: '1...7' is no range: one '..' between two ends": HEAD + "ops: {Conv: {limits: {group: 1...7}}}",
    "compare.yaml:4: '<= 7' is no range: 1..7, ..2048, 2.., [1, 2], [[2, 3]], pow2, =TERM, a word or true": HEAD
    + "ops: {Conv: {limits: {group: <= 7}}}",
    "none.yaml:4: an empty list allows nothing": HEAD + "ops: {Conv: {limits: {group: []}}}",
    "mixed.yaml:4: whole lists ([[2, 3]]) and single values cannot stand in one list": HEAD
    + "ops: {Conv: {limits: {strides: [[2, 2], 1]}}}",
    "extent.yaml:4: 'H/2' is no extent in the shape of X: a name, a number, _ or a leading ...": HEAD
    + "ops: {Conv: {shape: {X: N C H/2 W}}}",
    "dots_last.yaml:4: '...' stands first or not at all in the shape of X": HEAD + "ops: {Conv: {shape: {X: N C ...}}}",
    # other files
    "lost.yaml:4: no policy file 'fp17' is found": HEAD + "policies: fp17",
    "orphan.yaml:4: no backend file 'nobody' is found": HEAD + "extends: nobody",
    "dialect.yaml:4: unknown key 'languages' in backend file": HEAD + "languages: [acme]",
}


@pytest.mark.parametrize("message", CASES)
def test_message(message, tmp_path):
    path = tmp_path / message.partition(":")[0]
    path.write_text(CASES[message])
    with pytest.raises(SchemaError) as caught:
        load_backend(path)
    assert caught.value.message == message


LONG, DIGITS = "a" * 5000, "9" * 5000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"policies: {LONG}", f"no policy file '{LONG}' is found"),
        (f"extends: {LONG}", f"no backend file '{LONG}' is found"),
        (
            f"options: {{m: a}}\nvariants: [{{when: {{m: a}}, file: {LONG}}}]",
            f"no file '{LONG}' is found beside x.yaml",
        ),
        (f"region: {{count: {DIGITS}}}", f"a number of more than 300 digits: '{'9' * 40}...'"),
        (f"types: {{q: {{dtype: int8, axis: {DIGITS}}}}}", f"a number of more than 300 digits: '{'9' * 40}...'"),
        (f"ops: {{Conv: {{limits: {{group: {DIGITS}}}}}}}", f"a number of more than 300 digits: '{'9' * 40}...'"),
        (f"opset: 1..{DIGITS}", f"opset: '1..{DIGITS}' is no version and no range of two versions (10..11)"),
    ],
    ids=["policies", "extends", "variant", "count", "axis", "range", "opset"],
)
def test_a_name_or_number_that_is_too_long(text, problem, write):
    """Operating systems and Python refuse these by errors of their own."""
    text = text if text.startswith("opset") else f"opset: 22\n{text}"
    with pytest.raises(SchemaError) as caught:
        load_backend(write(f"backend: x\ndevice: cpu\n{text}\n"))
    assert caught.value.problem == problem
    assert caught.value.line in (3, 4, 5)


def test_a_root_of_a_negative_number_is_no_traceback_at_a_node(load, node):
    """`(group-9)**(1/2)` is complex where the group is 1."""
    judge = RuleJudge(load("ops: {Conv: {limits: {group: ..(group-9)**(1/2)}}}"))
    verdict = judge(node("(float[1,1,8,8] X, float[1,1,3,3] W) => (float y) { y = Conv(X, W) }"))
    assert "a root of a negative number" in verdict.reasons[0].text


def test_a_binary_file(tmp_path):
    for content in (b"\x7fELF\x00\xff\xfe", b"backend: x\n\x00\x01"):
        path = tmp_path / "binary.yaml"
        path.write_bytes(content)
        with pytest.raises(SchemaError, match=r"binary\.yaml:1: not a text file"):
            load_backend(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SchemaError, match=r"none\.yaml: cannot be read: No such file"):
        load_backend(tmp_path / "none.yaml")


def test_extends_in_a_circle(write):
    write("backend: a\nextends: b\n", "a.yaml")
    path = write("backend: b\nextends: a\n", "b.yaml")
    with pytest.raises(SchemaError) as caught:
        load_backend(path)
    assert caught.value.message == "a.yaml:2: extends goes in a circle: b.yaml -> a.yaml -> b.yaml"


def test_policies_that_extend_in_a_circle(write):
    write("extends: b\n", "a.yaml")
    write("extends: a\n", "b.yaml")
    with pytest.raises(SchemaError) as caught:
        load_backend(write("policies: a\n"))
    assert caught.value.message == "b.yaml:1: extends goes in a circle: a.yaml -> b.yaml -> a.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy:\n  fp-32: [Exp]", "p.yaml:2: unknown policy 'fp-32' (did you mean 'fp32'?)"),
        ("policy:\n  fp32: [Expo]", "p.yaml:2: unknown operator 'Expo' (did you mean 'Exp'?)"),
        ("policy:\n  fp32: [Exp]\n  pass: [Exp]", "p.yaml:3: 'Exp' is given twice (first on line 2)"),
        ("policy: {}\nkeep: {Resize: [scale]}", "p.yaml:2: Resize has no port 'scale' (did you mean 'scales'?)"),
        ("policy: {}\nkeeps: {}", "p.yaml:2: unknown key 'keeps' in policies file (did you mean 'keep'?)"),
    ],
)
def test_messages_of_a_policies_file(text, message, write):
    write(text, "p.yaml")
    with pytest.raises(SchemaError) as caught:
        load_backend(write("policies: p\n"))
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mrch": "bayes"}, "x.yaml:4: unknown option 'mrch' (did you mean 'march'?)"),
        ({"march": "byes"}, "x.yaml:4: unknown value 'byes' of option 'march' (did you mean 'bayes'?)"),
    ],
)
def test_an_option_that_does_not_exist(options, message, load):
    with pytest.raises(SchemaError) as caught:
        load("options: {march: [bernoulli2, bayes]}", options=options)
    assert caught.value.message == message


def test_two_files_of_one_name_are_told_apart(tmp_path):
    """The message has the name, the same on every machine; the hint says which of the files it is."""
    for folder in ("one", "two"):
        path = tmp_path / folder / "x.yaml"
        path.parent.mkdir()
        path.write_text("backend: x\ndevice: npu\nopset: 22..13\n")
        with pytest.raises(SchemaError) as caught:
            load_backend(path)
        assert caught.value.message.startswith("x.yaml:3: opset: ")
        assert caught.value.hint == f"the file is {path}"
