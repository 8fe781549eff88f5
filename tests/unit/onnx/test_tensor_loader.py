"""Every place where a file can hold a tensor, and everything that can be wrong with one, at the same loader."""

import itertools
import os

import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_model, open_proto
from dovetail_onnx.skeleton import skeleton_of
from onnx import AttributeProto, SparseTensorProto, TensorProto, helper, numpy_helper

OPSET = helper.make_opsetid("", 22)


def outside(name="w", location="w.bin", dims=(4,), dtype=TensorProto.FLOAT, **entries):
    """A tensor whose data lies in another file."""
    tensor = TensorProto(name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def constant(**values):
    """A Constant `k` with one attribute, which may hold a tensor in any form."""
    node = helper.make_node("Constant", [], ["k"], name="constant")
    attribute = node.attribute.add(name=next(iter(values)))
    for value in values.values():
        if isinstance(value, SparseTensorProto):
            attribute.type = AttributeProto.SPARSE_TENSOR
            attribute.sparse_tensor.CopyFrom(value)
        else:
            attribute.type = AttributeProto.TENSOR
            attribute.t.CopyFrom(value)
    return node


def sparse(values=None, indices=None, dims=(4,)):
    made = SparseTensorProto(dims=dims)
    made.values.CopyFrom(values or numpy_helper.from_array(np.array([1, 2], np.float32), "w"))
    made.indices.CopyFrom(indices or numpy_helper.from_array(np.array([0, 2], np.int64), "places"))
    return made


def model(nodes, initializers=(), functions=(), sparse_initializers=(), domains=()):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [x], [y], initializers, sparse_initializer=sparse_initializers)
    return helper.make_model(graph, opset_imports=[OPSET, *domains], functions=functions, ir_version=10)


def add(right="w"):
    return helper.make_node("Add", ["x", right], ["y"], name="add")


def with_initializer(tensor):
    return model([add()], [tensor])


def in_attribute(tensor):
    return model([constant(value=tensor), add("k")])


def in_function(tensor, depth=0):
    nodes = [constant(value=tensor), helper.make_node("Add", ["a", "k"], ["b"])]
    if depth:
        branch = helper.make_graph([constant(value=tensor)], "branch", [], [helper.make_empty_tensor_value_info("k")])
        condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [1]))
        nodes = [condition, helper.make_node("If", ["c"], ["t"], then_branch=branch, else_branch=branch),
                 helper.make_node("Add", ["a", "t"], ["b"])]  # fmt: skip
    function = helper.make_function("local", "F", ["a"], ["b"], nodes, [OPSET])
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    return model([call], functions=[function], domains=[helper.make_opsetid("local", 1)])


def in_function_default(tensor):
    made = in_function(numpy_helper.from_array(np.ones(4, np.float32)))
    made.functions[0].attribute_proto.append(constant(value=tensor).attribute[0])
    return made


def in_body(tensor):
    inner = helper.make_graph([helper.make_node("Identity", ["w"], ["z"])], "inner", [],
                              [helper.make_empty_tensor_value_info("z")], [tensor])  # fmt: skip
    outer = helper.make_graph([helper.make_node("If", ["c"], ["k"], then_branch=inner, else_branch=inner)], "outer", [],
                              [helper.make_empty_tensor_value_info("k")])  # fmt: skip
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [1])
    return model([helper.make_node("If", ["c"], ["t"], then_branch=outer, else_branch=outer), add("t")], [condition])


def in_training(tensor):
    made = model([helper.make_node("Relu", ["x"], ["y"])])
    made.training_info.add().algorithm.initializer.append(tensor)
    return made


PLACES = {
    "an initializer": with_initializer,
    "an attribute": in_attribute,
    "a body of a body": in_body,
    "a function": in_function,
    "a body in a function": lambda tensor: in_function(tensor, 1),
    "the default of a function's attribute": in_function_default,
    "values of a sparse initializer": lambda t: model([add()], sparse_initializers=[sparse(values=t)]),
    "indices of a sparse initializer": lambda t: model([add()], sparse_initializers=[sparse(indices=t)]),
    "a sparse attribute": lambda t: model([constant(sparse_value=sparse(values=t)), add("k")]),
    "training information": in_training,
}


@pytest.fixture
def write(tmp_path):
    """A folder with a secret beside the folder of the model, and everything that a location may wrongly name."""
    (tmp_path / "secret.txt").write_text("secret" * 1000)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    (folder / "link.bin").symlink_to("../secret.txt")
    (folder / "up").symlink_to("..")
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")

    def write(proto):
        path = folder / "m.onnx"
        path.write_bytes(proto.SerializeToString())
        return path

    return write


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("location", ["../secret.txt", "link.bin", "up/secret.txt", "/etc/passwd"])
def test_nothing_outside_of_the_folder_is_read_from_any_place(write, place, location):
    path = write(place(outside(location=location, dims=(2,))))
    with pytest.raises(DovetailError, match="lies outside the model's folder") as caught:
        open_model(path)
    assert caught.value.message.startswith(f"{path}: the data of ")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_data_that_does_not_fill_its_extents_is_found_in_every_place(write, place):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=bytes(5))
    with pytest.raises(DovetailError, match=r"holds 5 bytes, but \[2\] float needs 8"):
        open_model(write(place(tensor)))


@pytest.mark.parametrize("place", [in_attribute, in_body, in_function, in_training], ids=lambda place: place.__name__)
def test_data_beside_the_model_is_read_into_what_is_no_initializer(write, place):
    opened = open_model(write(place(outside(offset=8))))
    assert b"external_data" not in skeleton_of(opened).proto.SerializeToString()
    assert np.array([2, 3, 4, 5], np.float32).tobytes() in skeleton_of(opened).proto.SerializeToString()


EXTERNAL = {
    "a pipe": (outside(location="pipe"), "pipe is not a regular file"),
    "a device": (outside(location="/dev/zero"), "outside the model's folder"),
    "a folder": (outside(location="."), "is not a regular file"),
    "links in a circle": (outside(location="circle"), "cannot be read: circle"),
    "a NUL": (outside(location="a\0b"), r"cannot be read: a\x00b"),
    "a long name": (outside(location="a" * 5000), "(5000 characters): File name too long"),
    "no location": (outside(location=""), "(no location)"),
    "an offset below zero": (outside(offset=-4), "an offset that is not a number of bytes"),
    "an offset beyond the file": (outside(offset=3999), "has 4000 bytes, 4015 are needed"),
    "an offset of many digits": (outside(offset="9" * 5000), "an impossible offset of 5000 digits"),
    "digits of another script": (outside(offset="٣"), "an offset that is not a number of bytes"),
    "a length that is too short": (outside(length=1), "has a length of 1 bytes, but its extents need 16"),
    "a length that is too long": (outside(length=10**12), "but its extents need 16"),
    "a length that is no number": (outside(length="x"), "a length that is not a number of bytes"),
    "an extent below zero": (outside(dims=(-4,)), "has a negative extent ([-4])"),
    "extents that multiply to more than there can be": (outside(dims=(2**40, 2**40)), "has impossible extents"),
    "no type": (outside(dtype=0), "has an element type that ONNX does not know (0)"),
    "an unknown type": (outside(dtype=999), "has an element type that ONNX does not know (999)"),
    "strings": (outside(dtype=TensorProto.STRING), "holds strings, which cannot lie in another file"),
    "the mark of our own stubs": (outside(location="dovetail-weight"), "dovetail-weight does not exist"),
}


@pytest.mark.parametrize("case", EXTERNAL.values(), ids=EXTERNAL)
@pytest.mark.parametrize("place", [with_initializer, in_attribute], ids=["initializer", "attribute"])
def test_odd_references_to_other_files(write, case, place):
    tensor, says = case
    with pytest.raises(DovetailError) as caught:
        open_model(write(place(tensor)))
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400


def test_a_reference_that_says_everything_twice_is_refused(write):
    tensor = outside()
    tensor.external_data.add(key="location", value="../secret.txt")
    with pytest.raises(DovetailError, match="is described twice"):
        open_model(write(with_initializer(tensor)))


def test_data_here_and_there_is_refused(write):
    tensor = outside(dims=(2,))
    tensor.raw_data = bytes(8)
    with pytest.raises(DovetailError, match="lies in another file, and holds data itself"):
        open_model(write(with_initializer(tensor)))


@pytest.mark.parametrize("dims", [(300,), (4096,)], ids=["parsed", "left on disk"])
def test_a_large_initializer_that_claims_to_be_larger(write, dims):
    tensor = numpy_helper.from_array(np.ones(dims, np.float32), "w")
    tensor.dims[0] += 1
    with pytest.raises(DovetailError, match=f"initializer 'w' holds {4 * dims[0]} bytes, but"):
        open_model(write(with_initializer(tensor)))


INLINE = {
    "too few floats": ({"float_data": [1.0], "dims": [2]}, "holds 1 entries of float_data, but [2] float needs 2"),
    "too many floats": ({"float_data": [1.0] * 3, "dims": [2]}, "holds 3 entries of float_data"),
    "the wrong field": ({"int64_data": [1, 2], "dims": [2]}, "holds int64_data, which is not where float is kept"),
    "two fields": ({"raw_data": bytes(8), "float_data": [1.0, 2.0], "dims": [2]}, "holds its data twice"),
    "nothing": ({"dims": [2]}, "holds no data for its extents [2]"),
    "raw strings": ({"raw_data": b"ab", "dims": [2], "data_type": TensorProto.STRING}, "holds strings as raw data"),
    "too few strings": ({"string_data": [b"a"], "dims": [2], "data_type": 8}, "holds 1 entries of string_data"),
    "half a byte too few": ({"raw_data": b"a", "dims": [3], "data_type": TensorProto.INT4}, "[3] int4 needs 2"),
    "one part of a complex number": ({"float_data": [1.0], "dims": [1], "data_type": 14}, "[1] complex64 needs 2"),
    "a segment": ({"raw_data": bytes(8), "dims": [2], "segment": TensorProto.Segment(begin=0, end=1)}, "is a segment"),
}


@pytest.mark.parametrize("case", INLINE.values(), ids=INLINE)
def test_odd_data_inside_the_file(case):
    fields, says = case
    tensor = TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, **fields})
    with pytest.raises(DovetailError) as caught:
        open_proto(with_initializer(tensor))
    assert says in caught.value.message


NUMBERS = [TensorProto.FLOAT, TensorProto.INT4, TensorProto.BFLOAT16, TensorProto.BOOL, TensorProto.COMPLEX64]
FORMS = [*itertools.product(NUMBERS, [True, False]), (TensorProto.STRING, False)]  # strings have no raw form


@pytest.mark.parametrize(("dtype", "raw"), FORMS, ids=lambda part: {True: "raw", False: "fields"}.get(part, str(part)))
@pytest.mark.parametrize("dims", [[], [0], [3], [2, 2]], ids=str)
def test_what_onnx_writes_is_admitted(dtype, dims, raw):
    count = int(np.prod(dims))
    if raw:
        tensor = numpy_helper.from_array(np.zeros(dims, helper.tensor_dtype_to_np_dtype(dtype)), "w")
    else:
        tensor = helper.make_tensor("w", dtype, dims, [b"a" if dtype == TensorProto.STRING else 0] * count)
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [tensor])
    assert "w" in open_proto(proto).initializer_names()


def test_sparse_initializers_become_dense():
    indices = numpy_helper.from_array(np.array([[0, 1], [3, 3]], np.int64), "places")
    opened = open_proto(model([add()], sparse_initializers=[sparse(indices=indices, dims=(4, 4))]))
    dense = opened.graph.initializers["w"].const_value.numpy()
    assert dense[0, 1] == 1 and dense[3, 3] == 2 and np.count_nonzero(dense) == 2


def test_large_sparse_initializers_stay_out_of_the_proto():
    opened = open_proto(model([add()], sparse_initializers=[sparse(dims=(1000, 1000))]))
    assert len(skeleton_of(opened).proto.SerializeToString()) < 1000
    assert opened.graph.initializers["w"].const_value.shape == (1000, 1000)


SPARSE = {
    "an index beyond the end": ({"indices": [0, 4]}, "has indices that do not fit 2 values in [4]"),
    "an index below zero": ({"indices": [-1, 2]}, "has indices that do not fit"),
    "more indices than values": ({"indices": [0, 1, 2]}, "has indices that do not fit"),
    "zeros without end": ({"dims": (2**20, 2**20)}, "is larger than 256 MiB with its zeros"),
    "an extent below zero": ({"dims": (-4,)}, "has a negative extent"),
}


@pytest.mark.parametrize("case", SPARSE.values(), ids=SPARSE)
def test_odd_sparse_tensors(case):
    changes, says = case
    if "indices" in changes:
        changes = {"indices": numpy_helper.from_array(np.array(changes["indices"], np.int64), "i")}
    with pytest.raises(DovetailError) as caught:
        open_proto(model([add()], sparse_initializers=[sparse(**changes)]))
    assert says in caught.value.message


def test_a_model_that_is_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(DovetailError, match="is not a regular file"):
        open_model(tmp_path / "m.onnx")


def test_external_data_of_a_proto_without_a_file_is_refused():
    with pytest.raises(DovetailError, match="the model: the data of initializer 'w' lies in another file"):
        open_proto(onnx.ModelProto.FromString(with_initializer(outside()).SerializeToString()))
