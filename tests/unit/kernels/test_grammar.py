"""The grammar of operator files: what an entry says, and what is wrong with one."""

import pytest
from dovetail.errors import DovetailError
from dovetail_kernels.operator_files.entries import KeyCandidates, OperatorArgument, OperatorOutput
from dovetail_kernels.operator_files.reading import read_operators
from dovetail_kernels.operator_files.signatures import BadSignature, parse_args, parse_candidates, parse_outputs

FILE = """
- op : conv2d
  args : (Tensor input, Tensor filter, int[] strides = {1, 1}, str padding_algorithm = "EXPLICIT", int groups=1)
  output : Tensor(out)
  infer_meta :
    func : ConvInferMeta
  kernel :
    func : conv2d
    data_type : input
  backward : conv2d_grad
  traits : paddle::dialect::ForwardOnlyTrait

- op : split_with_num
  args : (Tensor x, int num, Scalar(int) axis = 0)
  output : Tensor[](out){num}
  infer_meta : {func: SplitWithNumInferMeta, param: [x, axis]}
  kernel : {func: split_with_num, data_type: x > axis}
  inplace : (x -> out)
  optional : out
- op : swish
  args : (Tensor x)
  output : Tensor
  composite : swish_composite(x)

- backward_op : conv2d_grad
  forward : conv2d (Tensor input, Tensor filter, int[] strides, str padding_algorithm, int groups) -> Tensor(out)
  args : (Tensor input, Tensor filter, Tensor out_grad, int[] strides, str padding_algorithm, int groups)
  output : Tensor(input_grad), Tensor(filter_grad)
  infer_meta : {func: GeneralBinaryGradInferMeta, param: [input, filter]}
  kernel : {func: conv2d_grad, data_type: input}
  no_need_buffer : out_grad
"""


@pytest.fixture
def read(tmp_path):
    def read_text(text, domain="pd_op"):
        path = tmp_path / "ops.yaml"
        path.write_text(text)
        return read_operators(path, domain)

    return read_text


def problems(read, text):
    with pytest.raises(DovetailError) as raised:
        read(text)
    return raised.value.message


def test_a_list_of_entries_as_paddle_has_it(read):
    file = read(FILE)
    assert list(file.entries) == ["conv2d", "split_with_num", "swish"] and list(file.gradients) == ["conv2d_grad"]
    conv = file.entries["conv2d"]
    assert [arg.name for arg in conv.inputs] == ["input", "filter"]
    assert conv.attributes == (
        OperatorArgument("strides", "int[]", True, [1, 1]),
        OperatorArgument("padding_algorithm", "str", True, "EXPLICIT"),
        OperatorArgument("groups", "int", True, 1),
    )
    assert conv.where == "ops.yaml:2" and conv.kernel.data_type == KeyCandidates(("input",))
    split = file.entries["split_with_num"]
    assert split.outputs == (OperatorOutput("out", "Tensor[]", "num"),) and split.inplace == (("x", "out"),)
    assert split.kernel.data_type == KeyCandidates(("x", "axis"), ordered=True)
    assert file.entries["swish"].composite.function == "swish_composite"
    assert file.gradients["conv2d_grad"].forward.name == "conv2d"


def test_a_mapping_names_domain_version_and_functions(read):
    file = read(
        """
domain: acme
version: 2
functions: acme_ops.functions
operators:
  - op: scaled_swish
    args: (Tensor x, float beta = 1.0f)
    output: Tensor(out)
    composite: |
      s = Sigmoid (x)
      out = Mul (x, s)
""",
        domain="",
    )
    assert (file.domain, file.version, file.functions) == ("acme", 2, "acme_ops.functions")
    assert file.entries["scaled_swish"].body.startswith("s = Sigmoid (x)")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(Tensor[] xs)", [("xs", "Tensor[]", None)]),
        ("(Tensor x, IntArray axis = {})", [("x", "Tensor", None), ("axis", "IntArray", [])]),
        ("(Tensor x, Scalar(float) v = 1e-5f)", [("x", "Tensor", None), ("v", "Scalar(float)", 1e-5)]),
        ("(DataType dtype = DataType::FLOAT32)", [("dtype", "DataType", "FLOAT32")]),
        ("(Tensor x, Place place = {})", BadSignature),
        ('(str mode = "a, b")', [("mode", "str", "a, b")]),
        ("(bool flag = true, Scalar x = 2L)", [("flag", "bool", True), ("x", "Scalar", 2)]),
        ("(double x = -inf)", [("x", "double", float("-inf"))]),
        ("()", []),
    ],
)
def test_arguments(text, found):
    if found is BadSignature:
        with pytest.raises(BadSignature):
            parse_args(text)
    else:
        assert [(arg.name, arg.type, arg.default) for arg in parse_args(text)] == found


def test_outputs_and_candidates():
    assert parse_outputs("Tensor(out), Tensor[](parts){x.size()}")[1] == OperatorOutput("parts", "Tensor[]", "x.size()")
    assert parse_candidates("x, y") == KeyCandidates(("x", "y"), ordered=False)
    assert parse_candidates("complex(x) > DataType::FLOAT32").names == ("complex(x)", "DataType::FLOAT32")


ENTRY = """
- op : relu
  args : (Tensor x)
  output : Tensor(out)
  infer_meta : {func: UnchangedInferMeta}
  kernel : {func: relu}
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("args :", "arg :", "ops.yaml:3: unknown key 'arg' (did you mean 'args'?)"),
        ("(Tensor x)", "(Tensr x)", "ops.yaml:3: args: 'Tensr' of 'x' is no type (did you mean 'Tensor'"),
        ("(Tensor x)", "(Tensor x, int a = 1, int b)", "args: 'b' has no default, and 'a' before it has one"),
        ("(Tensor x)", "(int a, Tensor x)", "args: tensor 'x' stands behind attribute 'a'; tensors come first"),
        ("(Tensor x)", "(Tensor x, Tensor x)", "args: 'x' is given twice"),
        ("(Tensor x)", "(Tensor x, int a = 1.5)", "args: the default '1.5' of 'a' is no int"),
        ("(Tensor x)", "Tensor x", "args: 'Tensor x' is no list of arguments in parentheses"),
        ("Tensor(out)", "Tensor(a), Tensor", "ops.yaml:4: output: output 'Tensor' has no name"),
        ("{func: relu}", "{func: relu, data_type: y}", "ops.yaml:2: 'relu': data_type: there is no 'y'"),
        ("{func: relu}", "{fnc: relu}", "unknown key 'fnc' in kernel (did you mean 'func'?)"),
        ("{func: relu}", "{func: 'relu {dense -> thick}'}", "'thick' of kernel 'relu' is no kind of tensor"),
        ("  kernel : {func: relu}\n", "", "it has neither kernel, composite nor invoke, so nothing executes it"),
        ("  kernel", "  inplace : (y -> out)\n  kernel", "inplace: there is no 'y'"),
        ("  kernel", "  backward : relu_grad\n  op : again\n  kernel", "'op' is given twice"),
        ("- op : relu", "- operator : relu", "an entry has one of 'op' and 'backward_op'"),
    ],
)
def test_a_mistake_is_named_with_its_line(read, old, new, says):
    assert says in problems(read, ENTRY.replace(old, new, 1))


def test_all_problems_of_a_file_are_named_at_once(read):
    text = FILE.replace("data_type : input", "data_type : inputs")
    said = problems(read, text.replace("optional : out", "optional : o"))
    assert "ops.yaml:2: 'conv2d': data_type: there is no 'inputs' (did you mean 'input'?)" in said
    assert "ops.yaml:13: 'split_with_num': optional: there is no 'o'" in said


SIGNATURE, OUTPUTS = "conv2d (Tensor input, Tensor filter, int[]", "Tensor(input_grad), Tensor(filter_grad)"
ARGS = "int[] strides, str padding_algorithm, int groups)\n  output : Tensor(input"
NEAR = "there is no backward_op 'conv2_grad' (did you mean 'conv2d_grad'?)"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("backward : conv2d_grad", "backward : conv2_grad", NEAR),
        ("forward : conv2d (", "forward : conv3d (", "there is no op 'conv3d' (did you mean 'conv2d'?)"),
        (SIGNATURE, "conv2d (Tensor input, int[]", "forward: its inputs are (Tensor input), and those of 'conv2d'"),
        (OUTPUTS, "Tensor(a), Tensor(b), Tensor(c)", "it has 3 outputs, and 'conv2d' has 2 inputs"),
        (ARGS, ARGS.replace("s)", "s, int more)"), "attribute 'more' is not one of 'conv2d', and has no default"),
    ],
)
def test_a_gradient_that_does_not_fit_its_operator(read, old, new, says):
    assert says in problems(read, FILE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("domain: acme\noperators: {op: x}\n", "a list of entries is expected"),
        ("domain: acme\nops: []\n", "unknown key 'ops' in file"),
        ("domain: acme\nversion: two\noperators: []\n", "version: a whole number from 1 is expected"),
        ("", "the file is empty"),
        ("- {op: &a x}\n", "no anchors"),
    ],
)
def test_files_that_are_no_operator_files(read, text, says):
    assert says in problems(read, text)
