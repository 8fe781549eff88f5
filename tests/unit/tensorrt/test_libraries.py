"""Which TensorRT is found: the full one, the extra, or why there is none."""

import pytest
from dovetail_tensorrt.libraries import NoLibrary, library, state
from dovetail_tensorrt.runtime.cuda import NoDevice

WHOLE = "__version__ = '11.4.0'\nclass Builder: pass\nclass OnnxParser: pass\nclass Runtime: pass\n"


def test_without_any_the_extra_is_named(packages):
    packages()
    with pytest.raises(NoLibrary, match="TensorRT is not installed") as caught:
        library()
    assert "dovetail-tensorrt[rtx]" in caught.value.hint


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr("dovetail_tensorrt.libraries.check_driver", lambda: None)


def test_a_full_one_is_preferred(packages, gpu):
    packages(tensorrt=WHOLE, tensorrt_rtx_bindings=WHOLE)
    assert library().title == "TensorRT 11.4.0"


@pytest.mark.parametrize(
    "text, why",
    [
        ("raise ImportError('libnvinfer.so.11: cannot open shared object file')", "libnvinfer.so.11"),
        ("raise SystemError('wrong driver')", "SystemError: wrong driver"),
        ("__version__ = '11'", "tensorrt has no Builder, OnnxParser, Runtime"),
    ],
)
def test_a_broken_one_is_listed_with_its_error(packages, text, why):
    packages(tensorrt=text)
    with pytest.raises(NoLibrary, match="TensorRT is broken") as caught:
        library()
    assert why in caught.value.message
    assert why in state()


def test_the_bindings_alone_miss_their_libraries(packages):
    packages(tensorrt_rtx_bindings=WHOLE)
    assert "onnxruntime_ep_nv_tensorrt_rtx, which brings its libraries, is not installed" in state()


def test_a_missing_shared_object_is_named(packages):
    folder = packages(tensorrt_rtx_bindings=WHOLE, onnxruntime_ep_nv_tensorrt_rtx="")
    assert f"libcudart.so is missing in {folder / 'onnxruntime_ep_nv_tensorrt_rtx'}" in state()


def test_a_damaged_shared_object_is_named(packages):
    folder = packages(tensorrt_rtx_bindings=WHOLE, onnxruntime_ep_nv_tensorrt_rtx="")
    for name in ("libcudart.so.13", "libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"):
        (folder / "onnxruntime_ep_nv_tensorrt_rtx" / name).write_bytes(b"\x7fELF")
    assert "libcudart.so.13: file too short" in state()


def test_a_broken_full_one_gives_way_to_the_extra(packages, builder):
    if builder.sdk != "TensorRT-RTX":
        pytest.skip("the extra is not installed")
    import sys

    kept = {name: sys.modules[name] for name in ("tensorrt_rtx_bindings",)}
    packages(tensorrt="raise ImportError('no libnvinfer')")
    sys.modules.update(kept)
    sys.modules.pop("onnxruntime_ep_nv_tensorrt_rtx")
    assert library().sdk == "TensorRT-RTX"


def test_a_folder_of_that_name_is_no_package(packages, tmp_path):
    packages(tensorrt="")
    (tmp_path / "tensorrt" / "__init__.py").unlink()
    assert "TensorRT is not installed" in state()


def test_a_full_one_without_a_gpu_builds_nothing(packages, monkeypatch):
    def missing():
        raise NoDevice("there is no NVIDIA driver here (libcuda.so.1)")

    monkeypatch.setattr("dovetail_tensorrt.libraries.check_driver", missing)
    packages(tensorrt=WHOLE)
    assert "TensorRT is of no use here: there is no NVIDIA driver here" in state()
