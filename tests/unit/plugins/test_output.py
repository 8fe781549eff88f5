"""What plugins print goes to standard error and names them; what others print meanwhile is none of their business."""

import sys
import threading
import warnings
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.plugin import PluginWarning
from dovetail.plugin.loading import foreign_output, own_output
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def test_a_print_of_a_plugin_names_it(capsys):
    with pytest.warns(PluginWarning, match="acme prints to standard output"), foreign_output("acme"):
        print("hello")
    assert capsys.readouterr() == ("", "hello\n")


def test_prints_of_another_thread_stay_where_they_are(capsys):
    began, done = threading.Event(), threading.Event()

    def talk():
        began.wait()
        print("of another thread")
        done.set()

    other = threading.Thread(target=talk)
    other.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with foreign_output("acme"):
            began.set()
            done.wait()
    other.join()
    assert capsys.readouterr() == ("of another thread\n", "")


def test_two_threads_capture_at_once(capsys):
    barrier, found = threading.Barrier(2), {}

    def work(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with foreign_output(name):
                barrier.wait()
                print(name)
                barrier.wait()
        found[name] = True

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = capsys.readouterr()
    assert (said.out, sorted(said.err.split())) == ("", ["one", "two"])
    assert len(found) == 2


def test_standard_output_is_as_before_afterwards():
    before = sys.stdout
    with foreign_output("outer"), foreign_output("inner"):
        assert sys.stdout is not before
    assert sys.stdout is before


def test_functions_of_the_user_may_print_from_inside_of_a_plugin(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with foreign_output("acme"), own_output():
            print("of the user")
    assert capsys.readouterr() == ("of the user\n", "")


def test_neither_data_nor_progress_of_the_user_is_blamed_on_a_pass(capsys):
    images = np.load(DIGITS / "test.npz")["image"][:8]

    def data():
        for start in (0, 4):
            print("batch", start)
            yield {"image": images[start : start + 4]}

    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        dovetail.compile(DIGITS / "digits.onnx", "cpu-bf16", data=data, progress=lambda *what: print("progress"))
    said = capsys.readouterr()
    assert {"batch 0", "batch 4", "progress"} == set(said.out.splitlines())
    assert said.err == ""


def test_data_of_the_user_that_raises_is_named_with_its_line():
    def data():
        yield {"image": np.zeros((4, 1, 8, 8), np.float32)}
        raise OSError("the camera is off")

    with pytest.raises(
        dovetail.DovetailError, match=r"the data cannot be read: OSError: the camera is off \(plugins/test_"
    ):
        dovetail.compile(DIGITS / "digits.onnx", "ppl-int8", data=data)


class Talking(OnnxRuntimeCpu):
    """An engine that prints whatever it is asked."""

    name = "talking"

    def load(self, region, options):
        print("loading")
        return super().load(region, options)


def test_a_print_of_an_engine_leaves_json_alone(with_backend, capsys, tmp_path, monkeypatch):
    plugins = with_backend(
        "backend: talking-npu\ndevice: npu\nopset: 13..22\nprecision: {low: float16, high: float32}\n"
        "policies: fp16\ntypes: {f: [float16, float32]}\nops: {Conv: {types: f}}\n"
        "place: {strategy: autocast}\nemit: {engines: [talking]}\n"
    )
    plugins.registry.engine("talking", f"{__name__}:Talking")
    with pytest.warns(PluginWarning, match="talking .* prints to standard output"):
        dovetail.compile(DIGITS / "digits.onnx", "talking-npu", plugins=plugins)
    assert capsys.readouterr().out == ""
