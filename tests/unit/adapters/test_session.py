"""`dovetail.InferenceSession` answers as `onnxruntime.InferenceSession` does, whoever runs the result."""

import copy
import pickle
import threading
import warnings

import dovetail
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from dovetail.errors import DovetailError, UsageError
from onnx import TensorProto, helper

FEED = {"x": np.array([[1.0, -2.0, 3.0]], np.float32)}


def model():
    """y = Relu(x + b), and z = Softmax(y)."""
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("y", "z")]
    nodes = [
        helper.make_node("Add", ["x", "b"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["y"], "relu"),
        helper.make_node("Softmax", ["y"], ["z"], "softmax"),
    ]
    bias = onnx.numpy_helper.from_array(np.array([0.5, 0.5, 0.5], np.float32), "b")
    graph = helper.make_graph(nodes, "net", [taken], given, [bias])
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)], producer_name="maker")
    made.metadata_props.add(key="license", value="mine")
    return made


@pytest.fixture(scope="module")
def bare():
    return ort.InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=["host", "cpu-bf16"])
def session(request):
    """One that ONNX Runtime runs as a whole, and one on another engine."""
    return dovetail.InferenceSession(model(), backend=request.param)


@pytest.mark.parametrize("names", [None, [], ["z"], ["z", "y"]])
def test_run_returns_the_outputs_that_are_asked_for_in_this_order(session, bare, names):
    for got, wanted in zip(session.run(names, FEED), bare.run(names, FEED), strict=True):
        assert np.allclose(got, wanted, atol=2e-2)


def test_inputs_and_outputs_have_the_names_types_and_shapes_of_onnxruntime(session, bare):
    for ours, theirs in ((session.get_inputs, bare.get_inputs), (session.get_outputs, bare.get_outputs)):
        facts = [(value.name, value.type, list(value.shape)) for value in ours()]
        assert facts == [(value.name, value.type, list(value.shape)) for value in theirs()]
    assert session.get_overridable_initializers() == []


def test_metadata_is_that_of_the_source_without_what_compiling_added(session):
    found = session.get_modelmeta()
    assert (found.graph_name, found.custom_metadata_map) == ("net", {"license": "mine"})


def test_values_of_onnxruntime_go_in_and_come_out(session, bare):
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(FEED["x"])}
    (value,) = session.run_with_ort_values(["y"], feed)
    assert isinstance(value, ort.OrtValue) and np.allclose(value.numpy(), bare.run(["y"], FEED)[0], atol=2e-2)


def test_bound_inputs_and_outputs(session, bare):
    binding = session.io_binding()
    binding.bind_cpu_input("x", FEED["x"])
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    wanted = bare.run(["z"], FEED)[0]
    assert np.allclose(binding.copy_outputs_to_cpu()[0], wanted, atol=2e-2)
    assert np.allclose(binding.get_outputs()[0].numpy(), wanted, atol=2e-2)
    target = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 3), np.float32))
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    assert np.allclose(target.numpy(), [[1.5, 0.0, 3.5]], atol=2e-2)


@pytest.mark.parametrize("number", [False, True], ids=["type of NumPy", "number of TensorProto"])
def test_memory_of_the_caller_is_read_and_written_by_its_address(session, bare, number):
    x, y, z = FEED["x"].copy(), *(np.zeros((1, 3), np.float32) for _ in "yz")
    kind = int(TensorProto.FLOAT) if number else np.float32
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, kind, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, kind, [1, 3], y.ctypes.data)
    binding.bind_output(name="z", element_type=kind, shape=(1, 3), buffer_ptr=z.ctypes.data)
    for _ in range(2):
        session.run_with_iobinding(binding)
        for found, wanted in zip((y, z), bare.run(None, {"x": x}), strict=True):
            assert np.allclose(found, wanted, atol=2e-2)
        assert len(binding.get_outputs_as_ortvaluevector()) == 2
        x *= -1


def test_asynchronous_runs_call_back_with_results_or_with_what_went_wrong(session):
    for feed, fails in ((FEED, False), ({"x": np.ones((1, 4), np.float32)}, True)):
        done, answers = threading.Event(), []

        def callback(results, mark, error, done=done, answers=answers):
            answers.append((list(results), mark, error))
            done.set()

        session.run_async(["y"], feed, callback, "mark")
        assert done.wait(60)
        ((results, mark, error),) = answers
        assert mark == "mark" and bool(error) == fails and bool(results) != fails


@pytest.mark.parametrize(
    "feed", [{}, {"x": FEED["x"], "other": FEED["x"]}, {"x": np.ones((1, 4), np.float32)}, {"x": np.ones((1, 3))}],
    ids=["missing", "unknown", "shape", "type"],
)  # fmt: skip
def test_wrong_inputs_are_errors_that_name_the_input(session, feed):
    with pytest.raises(Exception, match="x|other") as caught:
        session.run(None, feed)
    assert session.get_providers() == ["CPUExecutionProvider"] or isinstance(caught.value, DovetailError)


def test_providers_tell_what_runs_the_model():
    assert dovetail.InferenceSession(model()).get_providers() == ["CPUExecutionProvider"]
    placed = dovetail.InferenceSession(model(), providers=["cpu-bf16", "CPUExecutionProvider"])
    assert placed.get_providers() == ["cpu-bf16", "CPUExecutionProvider"]
    assert placed.get_provider_options()["cpu-bf16"] == dict(placed.compiled.backends[0].chosen)


def test_methods_of_onnxruntime_that_are_not_listed_are_its_own(session):
    if session.get_providers() == ["CPUExecutionProvider"]:
        assert session.get_profiling_start_time_ns() >= 0
        assert ort.IOBinding(session) is not None
    else:
        with pytest.raises(AttributeError, match="several engines run this result"):
            session.get_profiling_start_time_ns()


def test_settings_of_onnxruntime_reach_its_session_and_stay_the_callers(tmp_path):
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 3
    settings.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = dovetail.InferenceSession(model(), settings)
    assert session.get_session_options().intra_op_num_threads == settings.intra_op_num_threads == 3
    assert settings.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert (tmp_path / "optimized.onnx").is_file()


def test_settings_that_serve_several_sessions_cause_no_warnings(capfd):
    settings = ort.SessionOptions()
    for _ in range(2):
        dovetail.InferenceSession(model(), settings)
    said = capfd.readouterr()
    assert "already exists" not in said.err + said.out


def test_the_number_of_threads_is_that_of_every_engine():
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    session = dovetail.InferenceSession(model(), settings, backend="cpu-bf16", verify=False)
    assert session.compiled.executor().options["threads"] == 1
    assert "threads" not in dovetail.InferenceSession(model(), ort.SessionOptions(), verify=False).compiled.options


def test_a_saved_result_is_loaded_by_its_folder_or_its_model_and_not_compiled_again(tmp_path):
    dovetail.compile(model(), "cpu-bf16").save(tmp_path / "out")
    for path in (tmp_path / "out", tmp_path / "out" / "model.onnx"):
        session = dovetail.InferenceSession(path)
        assert session.get_providers()[0] == "cpu-bf16" and session.compiled.saved is not None
    with pytest.raises(UsageError, match="is a result already: backend, high cannot change it"):
        dovetail.InferenceSession(tmp_path / "out", backend="host", high=["relu"])


def test_a_provider_that_is_no_backend_is_a_warning_that_lists_the_backends():
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is a provider of ONNX Runtime and no backend; .*host"):
        dovetail.InferenceSession(model(), providers=["CUDAExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = dovetail.InferenceSession(model(), providers=["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({"path_or_bytes": "absent.onnx"}, "absent.onnx"),
        ({"path_or_bytes": b"no model"}, "ONNX"),
        ({"path_or_bytes": "."}, "holds no model.onnx"),
        ({"backend": "cpu-bf61"}, "cpu-bf16"),
        ({"backends": "cpu-bf16"}, "no keyword 'backends'"),
        ({"providers": ["acme-npu"]}, "acme-npu"),
        ({"providers": [3]}, "3 is not a provider"),
        ({"providers": ["host"], "provider_options": [{}, {}]}, "1 providers and 2 sets of options"),
        ({"fast": True}, "fast"),
    ],
)
def test_what_cannot_be_opened_is_an_error_that_says_why(arguments, why):
    with pytest.raises(DovetailError, match=why):
        dovetail.InferenceSession(**{"path_or_bytes": model(), **arguments})


@pytest.mark.parametrize(
    "act, why",
    [
        (lambda bound: bound.bind_output("absent"), "no output 'absent'"),
        (lambda bound: bound.bind_output("y", "cuda"), "cannot be bound on 'cuda'"),
        (lambda bound: bound.bind_output("y", shape=[1, 3], buffer_ptr=8), "bound to an address alone"),
        (lambda bound: bound.bind_output("y", "cpu", 0, np.float32, [1, 3], 0), "cannot be bound to the address 0"),
        (lambda bound: bound.bind_input("x", "cpu", 0, str, [1, 3], 8), "an element has whole bytes"),
        (lambda bound: bound.bind_input("x", "cpu", 0, TensorProto.INT4, [1, 3], 8), "an element has whole bytes"),
        (lambda bound: bound.bind_input("x", "cpu", 0, "acme", [1, 3], 8), "one of NumPy, or a number of onnx"),
        (lambda bound: bound.bind_input("x", "cpu", 0, np.float32, [1, -3], 8), "an extent is 0 or more"),
    ],
)
def test_a_binding_that_is_not_possible_says_what_is(act, why):
    bound = dovetail.InferenceSession(model(), backend="cpu-bf16").io_binding()
    with pytest.raises(DovetailError, match=why):
        act(bound)


def test_a_binding_of_another_session_or_a_value_of_another_shape_is_an_error(bare):
    session = dovetail.InferenceSession(model(), backend="cpu-bf16")
    with pytest.raises(DovetailError, match="take the binding from io_binding"):
        session.run_with_iobinding(bare.io_binding())
    bound = session.io_binding()
    bound.bind_cpu_input("x", FEED["x"])
    bound.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32)))
    with pytest.raises(DovetailError, match="output 'y' does not fit its value"):
        session.run_with_iobinding(bound)
    memory = np.zeros((1, 4), np.float32)
    bound.bind_output("y", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    with pytest.raises(DovetailError, match=r"output 'y' is float32\[1, 3\], and does not fit its memory"):
        session.run_with_iobinding(bound)
    assert not memory.any()


def again(one):
    return pickle.loads(pickle.dumps(one))


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("copied", [again, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("backend", ["host", "cpu-bf16"])
def test_copies_and_pickles_answer_as_the_session_does(copied, backend, tmp_path, monkeypatch):
    onnx.save(model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    for given in (model(), model().SerializeToString(), "model.onnx", dovetail.open(model())):
        session = dovetail.InferenceSession(given, settings, backend=backend, high=["softmax"])
        monkeypatch.chdir(tmp_path.parent)
        other = copied(session)
        monkeypatch.chdir(tmp_path)
        assert other is not session and other.get_providers() == session.get_providers()
        assert other.compiled.options["threads"] == 1
        for one, wanted in zip(other.run(None, FEED), session.run(None, FEED), strict=True):
            np.testing.assert_array_equal(one, wanted)


def test_plugins_of_this_process_are_not_pickled():
    session = dovetail.InferenceSession(model(), plugins=dovetail.load_plugins())
    with pytest.raises(pickle.PicklingError, match="`plugins`"):
        pickle.dumps(session)
    assert copy.deepcopy(session).run(["y"], FEED)
