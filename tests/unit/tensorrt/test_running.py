"""The engine `tensorrt`, with a TensorRT and a GPU that are played: which file is run, and what is refused."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_onnx import ENGINES
from dovetail_tensorrt.cache import DESCRIPTION, ENGINE, read_engine, write_engine
from dovetail_tensorrt.runtime.cuda import NoDevice, check_driver
from dovetail_tensorrt.runtime.engine import TensorRT

from .fake_tensorrt import FakeCuda, fake_library

PROFILE = {"x": ((1, 4, 8, 8), (2, 4, 8, 8), (4, 4, 8, 8))}


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU with a TensorRT; `gpu.library` and `gpu.cuda` may be exchanged. Nothing is kept."""

    class Machine:
        library, cuda = fake_library(), FakeCuda()

    monkeypatch.setenv(ENGINES.variable, "off")
    for module in ("tensorrt_engine", "runtime.engine"):
        monkeypatch.setattr(f"dovetail_tensorrt.{module}.library", lambda: Machine.library)
        monkeypatch.setattr(f"dovetail_tensorrt.{module}.open_cuda", lambda runtime: Machine.cuda)
    monkeypatch.setattr("dovetail_tensorrt.runtime.engine.check_driver", lambda: None)
    return Machine


@pytest.fixture
def saved(gpu, convolution, tmp_path):
    """`saved()`: a compiled and saved model, and the folder of its engine."""

    def make(model=None, **request):
        request = {"profiles": PROFILE, **request} if model is None else request
        dovetail.compile(model or convolution(), "tensorrt", **request).save(tmp_path / "out")
        return tmp_path / "out", tmp_path / "out" / "artifacts" / "tensorrt" / "region_0"

    return make


def images(batch=2):
    return {"x": np.random.default_rng(1).standard_normal((batch, 4, 8, 8)).astype(np.float32)}


def on_host(folder, inputs, monkeypatch):
    """What ONNX Runtime computes from the function."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(["y"], inputs)[0]


def test_an_engine_is_run_where_it_fits(saved, monkeypatch):
    folder, _ = saved()
    loaded = dovetail.load(folder)
    result = loaded.run(images())
    assert [runner.engine for runner in loaded.regions] == ["tensorrt"]
    assert not [note for note in loaded.notes() if "engine" in note]
    np.testing.assert_allclose(result["y"], on_host(folder, images(), monkeypatch), rtol=1e-2, atol=1e-2)


def test_every_shape_in_the_profile_runs_with_the_same_session(saved):
    loaded = dovetail.load(saved()[0])
    for batch in (4, 1, 3, 4):
        inputs = images(batch)
        first, second = loaded.run(inputs)["y"], loaded.run(inputs)["y"]
        assert first.shape == (batch, 4, 8, 8)
        np.testing.assert_array_equal(first, second)
        assert first.ctypes.data != second.ctypes.data


def test_threads_take_turns(saved):
    loaded = dovetail.load(saved()[0])
    loaded.run(images())
    results, batches = {}, range(1, 5)

    def run(batch):
        results[batch] = [loaded.run(images(batch))["y"] for _ in range(5)]

    threads = [threading.Thread(target=run, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for batch in batches:
        alone = loaded.run(images(batch))["y"]
        assert all(np.array_equal(result, alone) for result in results[batch])


def test_memory_and_streams_are_given_back(saved, gpu):
    loaded = dovetail.load(saved()[0])
    loaded.run(images())
    assert gpu.cuda.memory and gpu.cuda.streams
    loaded.unload()
    del loaded
    import gc

    gc.collect()
    assert not gpu.cuda.memory
    assert not gpu.cuda.streams


def test_shapes_outside_of_the_profile_are_refused_and_the_way_out_is_named(saved, gpu, convolution):
    from dovetail.errors import DovetailError

    folder, _ = saved()
    loaded = dovetail.load(folder)
    result = loaded.run(images(9))  # the next engine computes it
    assert result["y"].shape == (9, 4, 8, 8)
    (note,) = [note for note in loaded.notes() if "outside" in note]
    assert "'x' is 9x4x8x8, outside of the engine's profile 1x4x8x8:2x4x8x8:4x4x8x8" in note
    assert "extent 9 of axis 0 is not in 1..4" in note
    session = TensorRT().load(region_of(folder), {})
    with pytest.raises(DovetailError, match="outside of the engine's profile") as caught:
        session.run(images(9))
    assert caught.value.hint == "compile with --profile x:MIN:OPT:MAX that holds 9x4x8x8"


def region_of(folder, artifact="region_0"):
    from dovetail.plugin import RegionModel

    return RegionModel(dovetail.load(folder).model, artifact=folder / "artifacts" / "tensorrt" / artifact)


def loaded_with(folder):
    """A session on the files as they are, past the store, which refuses edited ones by itself."""
    return TensorRT().load(region_of(folder), {})


def test_the_engine_of_another_model_is_not_run(saved, convolution, tmp_path):
    folder, region = saved()
    other = dovetail.compile(convolution(seed=1), "tensorrt", profiles=PROFILE)
    for name in (ENGINE, DESCRIPTION):
        (region / name).write_bytes((other.artifacts.root / "tensorrt" / "region_0" / name).read_bytes())
    session = loaded_with_edited(folder, region)
    (note,) = session.notes
    assert f"{region / ENGINE} is the engine of another model" in note
    assert "another one was built for this run" in note


def loaded_with_edited(folder, region):
    from dovetail.plugin import RegionModel

    model = dovetail.open(folder / "model.onnx")
    return TensorRT().load(RegionModel(model, artifact=region), {})


@pytest.mark.parametrize(
    "damage, why",
    [
        (
            lambda region: (region / ENGINE).write_bytes((region / ENGINE).read_bytes()[:50]),
            "is truncated: it has 50 of",
        ),
        (lambda region: (region / ENGINE).write_bytes(bytes((region / ENGINE).stat().st_size)), "its SHA-256 differs"),
        (lambda region: (region / ENGINE).unlink(), "cannot be read: No such file"),
        (lambda region: (region / DESCRIPTION).unlink(), "cannot be read"),
        (lambda region: (region / DESCRIPTION).write_text("{}"), "cannot be read"),
    ],
)
def test_a_damaged_engine_is_refused_with_its_name(saved, damage, why, monkeypatch):
    folder, region = saved()
    damage(region)
    session = loaded_with_edited(folder, region)
    (note,) = session.notes
    assert why in note and str(region) in note
    np.testing.assert_allclose(session.run(images())["y"], on_host(folder, images(), monkeypatch), rtol=1e-2, atol=1e-2)


def test_a_truncated_engine_of_a_saved_result_is_refused_by_the_store(saved):
    folder, region = saved()
    (region / ENGINE).write_bytes(b"fake")
    loaded = dovetail.load(folder)
    from dovetail.errors import DovetailError

    with pytest.raises(DovetailError, match=f"tensorrt/region_0/{ENGINE} is not the file that was saved"):
        loaded.run(images())


@pytest.mark.parametrize(
    "change, why",
    [
        ({"library": fake_library("11.5.0")}, "was built by TensorRT 11.4.0, and TensorRT 11.5.0 is here"),
        ({"library": fake_library("1.7.1", "TensorRT-RTX")}, "and TensorRT-RTX 1.7.1 is here"),
    ],
)
def test_an_engine_of_another_sdk_is_built_again(saved, gpu, change, why):
    folder, region = saved()
    gpu.library = change["library"]
    (note,) = loaded_with(folder).notes
    assert why in note


def test_an_engine_for_another_gpu_is_built_again(saved, gpu):
    folder, region = saved()
    write_engine(region, replace(read_engine(region), target="sm120"))
    (note,) = loaded_with_edited(folder, region).notes
    assert "is for sm120, and the GPU here is sm89" in note


def test_without_an_engine_one_is_built_just_in_time_and_kept(saved, gpu, monkeypatch, tmp_path):
    folder, region = saved()
    monkeypatch.setenv(ENGINES.variable, str(tmp_path / "cache"))
    gpu.library = fake_library("11.5.0")
    loaded_with(folder)
    (entry,) = (tmp_path / "cache").glob("*/files")
    monkeypatch.setattr("dovetail_tensorrt.making.parse", None)  # another build would fail
    loaded_with(folder)
    assert [*(tmp_path / "cache").glob("*/files")] == [entry]


def test_without_bounds_of_open_extents_no_engine_can_be_built(gpu, convolution):
    compiled = dovetail.compile(convolution(), "tensorrt")
    assert compiled.run(images(3))["y"].shape == (3, 4, 8, 8)
    assert [runner.engine for runner in compiled.regions] == ["onnxruntime-cpu"]
    why = "the extents of 'x' are open, and nothing says their bounds"
    assert any(why in remark.why for remark in compiled.remarks if remark.rule == "engine-refused")
    untried = dovetail.compile(convolution(), "tensorrt", try_engines=False)
    untried.run(images(3))
    assert any(why in note for note in untried.notes())


TYPES = ["float16", "float", "int8", "int32", "int64", "bool"]


@pytest.mark.parametrize("kind", TYPES)
def test_arrays_of_every_type_cross_the_border(gpu, kind):
    from dovetail.plugin import RegionModel

    model = dovetail.open(
        onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["": 20]> g ({kind}[2,3] x) => ({kind}[3,2] y) '
            "{ y = Transpose<perm=[1,0]>(x) }"
        )
    )
    names = {"float": np.float32, "bool": np.bool_}
    array = np.arange(6).reshape(2, 3).astype(names.get(kind, kind))
    result = TensorRT().load(RegionModel(model), {}).run({"x": array})
    assert result["y"].dtype == array.dtype
    np.testing.assert_array_equal(result["y"], array.T)


def test_extents_that_the_data_decides(gpu):
    from dovetail.plugin import RegionModel

    model = dovetail.open(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20]> g (float[2,3] x) => (int64[2,K] y) { y = NonZero(x) }'
        )
    )
    session = TensorRT().load(RegionModel(model), {})
    for given in (np.eye(2, 3), np.ones((2, 3)), np.zeros((2, 3))):
        result = session.run({"x": given.astype(np.float32)})["y"]
        np.testing.assert_array_equal(result, np.array(given.nonzero()))


def test_an_array_of_another_type_is_refused(gpu, saved):
    from dovetail.plugin import EngineError

    with pytest.raises(EngineError, match="'x' is float64, and the engine reads float32"):
        loaded_with(saved()[0]).run({"x": np.ones((2, 4, 8, 8))})


def test_without_a_driver_the_function_is_computed(convolution):
    try:
        check_driver()
    except NoDevice:
        pass
    else:
        pytest.skip("there is a GPU")
    compiled = dovetail.compile(convolution("2"), "tensorrt")
    assert compiled.run(images())["y"].shape == (2, 4, 8, 8)
    assert [runner.engine for runner in compiled.regions] == ["onnxruntime-cpu"]
    assert any("tensorrt is not available: there is no NVIDIA driver here" in note for note in compiled.notes())


def test_backends_lists_the_engine_with_its_state(packages, capsys):
    from dovetail.cli.main import main

    packages(tensorrt="raise ImportError('libnvinfer.so.11 is missing')")
    assert main(["backends"]) == 0
    assert "TensorRT is broken: ImportError: libnvinfer.so.11 is missing" in capsys.readouterr().out


def test_a_model_that_passes_an_input_through(gpu, convolution, tmp_path):
    model = convolution("2")
    model.graph.output.append(model.graph.input[0])
    compiled = dovetail.compile(model, "tensorrt")
    inputs = images()
    results = compiled.run(inputs)
    assert [runner.engine for runner in compiled.regions] == ["tensorrt"]
    np.testing.assert_array_equal(results["x"], inputs["x"])


def test_a_gpu_that_the_sdk_is_not_made_for_is_no_gpu_for_it(gpu):
    class Listed:
        SM89 = 5

    gpu.library = fake_library("1.7.1", "TensorRT-RTX")
    gpu.library.trt.ComputeCapability = Listed
    assert TensorRT().available() == (True, "")
    gpu.cuda = FakeCuda((9, 0))
    gpu.library.trt.Builder = Refusing
    assert TensorRT().available() == (False, "TensorRT-RTX 1.7.1 is not made for the GPU here (sm90)")


class Refusing:
    """Builds nothing."""

    def __init__(self, logger):
        pass

    def create_network(self, flags):
        layer = SimpleNamespace(get_output=lambda index: None)
        return SimpleNamespace(
            add_input=lambda *given: None, add_identity=lambda value: layer, mark_output=lambda value: None
        )

    def create_builder_config(self):
        return None

    def build_serialized_network(self, network, config):
        return None


def test_a_driver_that_is_too_old_is_no_gpu(gpu):
    class Old(FakeCuda):
        def capability(self):
            raise NoDevice("CUDA fails while it is asked: CUDA driver version is insufficient for CUDA runtime version")

    gpu.cuda = Old()
    ok, why = TensorRT().available()
    assert not ok and "driver version is insufficient" in why
