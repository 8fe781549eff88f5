"""A result is recognized by what it holds, not by what it says of itself."""

import shutil
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail import api
from dovetail.passes import Context, Request
from dovetail.planning import Plan
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_model
from dovetail_onnx.results.cache_key import cache_key_for
from dovetail_onnx.saving import CONTENT_DIGEST, content_digest_holds, read_content_digest
from onnx import numpy_helper

from .conftest import files_of


def compiled_again(path, **request):
    return api.compile(path, ["cpu-bf16"], try_engines=False, **request)


def edited(how):
    """`out/model.onnx` after an edit, saved by onnx as anybody would."""
    proto = onnx.load("out/model.onnx")
    if how == "a weight":
        (weight,) = (tensor for tensor in proto.graph.initializer if tensor.name.startswith("w"))
        weight.raw_data = bytes(len(weight.raw_data))
    elif how == "the graph":
        proto.graph.node[0].name = "renamed"
    elif how == "metadata":
        entry = proto.metadata_props.add()
        entry.key, entry.value = "author", "somebody"
    onnx.save(proto, "edited.onnx")
    return "edited.onnx"


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_a_result_gives_itself_back(results, external):
    results["a"].save("out", external=external)
    again = compiled_again("out/model.onnx")
    assert again.saved.file == Path("out/model.onnx")
    again.save("again")
    assert files_of("again") == files_of("out")
    assert again.placement_table() == api.load("out").placement_table()
    assert again.summary() == results["a"].summary()


def test_a_bare_model_is_recognized_without_its_folder(results):
    results["a"].save("out")
    shutil.copy("out/model.onnx", "bare.onnx")
    again = compiled_again("bare.onnx")
    assert again.saved.file == Path("bare.onnx")
    again.save("again")
    assert files_of("again")["model.onnx"] == files_of("out")["model.onnx"]


@pytest.mark.parametrize("how", ["a weight", "the graph", "metadata", "nothing, but it was saved by another tool"])
def test_a_model_that_somebody_edited_is_compiled(results, how):
    results["a"].save("out")
    again = compiled_again(edited(how))
    assert again.saved is None
    again.save("again")  # with a cache key and a content digest of its own
    assert compiled_again("again/model.onnx").saved is not None


@pytest.mark.parametrize("place", ["model.onnx", "data"])
def test_a_byte_that_was_changed_in_place(results, place):
    results["a"].save("out", external=True)
    path = next(Path("out").glob(f"*{place}"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1 if place == "data" else 0x20
    if place == "model.onnx":
        content = path.read_bytes().replace(b"first", b"thirs")
    path.write_bytes(content)
    assert compiled_again("out/model.onnx").saved is None


def test_a_cache_key_alone_does_not_count(results):
    """As in files of a version that knew no content digests."""
    results["a"].model.save("unsealed.onnx")
    assert compiled_again("unsealed.onnx").saved is None


def test_a_model_in_memory_that_was_edited(results):
    results["a"].save("out")
    model = open_model("out/model.onnx")
    model.graph.initializers["w"].const_value = ir.tensor(np.zeros((8, 4096), ml_dtypes.bfloat16), name="w")
    assert compiled_again(model).saved is None


def test_what_was_changed_after_compiling_carries_no_cache_key(results):
    results["a"].save("out")
    loaded = api.load("out")
    loaded.model.graph.name = "mine"
    loaded.model.touch()
    loaded.save("mine")
    assert compiled_again("mine/model.onnx").saved is None


def test_a_plan_that_was_edited_beside_it_is_not_taken(results):
    results["a"].save("out")
    text = Path("out/plan.yaml").read_text()
    Path("out/plan.yaml").write_text(text.replace("bfloat16", "float32"))
    again = compiled_again("out/model.onnx")
    assert again.saved is not None
    assert {str(node.precision) for node in again.plan.nodes if node.op_type == "MatMul"} == {"bfloat16"}


def test_a_replayed_plan_is_part_of_the_request(results):
    results["a"].save("out")
    text = Path("out/plan.yaml").read_text()
    Path("plan.yaml").write_text(text.replace("cpu-bf16/bfloat16", "cpu-bf16/float32"))
    compiled_again("a.onnx", plan="plan.yaml").save("replayed")
    assert compiled_again("replayed/model.onnx").saved is None
    assert compiled_again("replayed/model.onnx", plan="plan.yaml").saved is not None


def cache_key(**changes):
    request = Request.of("cpu-bf16", **changes)
    return cache_key_for(request, Context(request, plugins=load_plugins()))


def test_a_result_that_no_engine_was_tried_with_is_another_one(results):
    results["a"].save("out")
    path = Path("out/model.onnx")
    assert api.compile(path, ["cpu-bf16"], try_engines=False).saved.file == path
    assert api.compile(path, ["cpu-bf16"], try_engines=True).saved is None


def test_the_cache_key_covers_what_shapes_a_result(tmp_path, monkeypatch):
    Path(tmp_path, "costs.yaml").write_text("start: 1\n")
    costs = {"costs": tmp_path / "costs.yaml"}
    first, plain = cache_key(**costs), cache_key()
    assert cache_key() == plain
    Path(tmp_path, "costs.yaml").write_text("start: 2\n")
    others = [
        first,
        plain,
        cache_key(**costs),
        cache_key(low=["a"]),
        cache_key(data={"x": np.ones(2)}),
        cache_key(plan=Plan(values={"a": 1})),
    ]
    # What an extra brings builds what others only plan.
    for distribution in ("onnx", "tensorrt-rtx-cu13-bindings"):
        info = tmp_path / distribution / f"{distribution.replace('-', '_')}-99.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 99\n")
        monkeypatch.syspath_prepend(info.parent)
        others.append(cache_key())
    assert len(set(others)) == len(others)


PACKAGES = {
    "vendor/backends/npu.yaml": """
backend: npu
extends: base-npu
options: {march: [one, two]}
variants:
  - {when: {march: two}, file: ../hardware/two.yaml}
""",
    "vendor/hardware/two.yaml": "ops: {Exp: {types: float32}}\n",
    "base_vendor/backends/base_npu.yaml": """
backend: base-npu
device: npu
opset: 13..26
precision: {low: float16, high: float32}
policies: own
types: {f: [float16, float32]}
ops: {"MatMul, Exp": {types: f}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
""",
    "base_vendor/policies/own.yaml": "extends: deeper\npolicy: {lower: [MatMul]}\n",
    "base_vendor/policies/deeper.yaml": "policy: {fp32: [Exp]}\n",
}


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("vendor/backends/npu.yaml", "extends", "summary: other\nextends"),
        ("vendor/hardware/two.yaml", "float32", "[float16, float32]"),
        ("base_vendor/backends/base_npu.yaml", "13..26", "14..26"),
        ("base_vendor/policies/own.yaml", "MatMul", "MatMul, Add"),
        ("base_vendor/policies/deeper.yaml", "Exp", "Exp, Log"),
    ],
)
def test_every_file_that_a_backend_is_read_from_is_part_of_the_cache_key(tmp_path, monkeypatch, file, before, after):
    """What it extends may lie in another package, with policies that nobody registered, a variant in any folder."""
    for name, text in PACKAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name.partition("/")[0] / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = load_plugins()
    plugins.registry.backend("npu", "vendor:backends/npu.yaml")
    plugins.registry.backend("base-npu", "base_vendor:backends/base_npu.yaml")
    request = Request.of("npu:march=two")

    def taken():
        return cache_key_for(request, Context(request, plugins=plugins))

    first = taken()
    assert taken() == first
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(before, after))
    assert taken() != first
    for module in ("vendor", "base_vendor"):
        sys.modules.pop(module, None)


def test_a_strategy_that_a_program_exchanges_is_part_of_the_cache_key():
    """The distribution that brings a backend need not change for it to be placed in another way."""
    request, plugins = Request.of("cpu-bf16"), load_plugins()
    before = cache_key_for(request, Context(request, plugins=plugins))
    plugins.registry.strategy("mine", "my_module:Strategy")
    assert cache_key_for(request, Context(request, plugins=plugins)) != before


def test_what_cannot_be_compared_is_never_recognized(results):
    request = Request.of("cpu-bf16", data=lambda: iter([]))
    assert cache_key_for(request, Context(request, plugins=load_plugins())) == ""
    assert cache_key_for(Request.of("cpu-bf16"), Context(plugins=load_plugins()), passes=[object()]) == ""


def test_a_seal_is_the_end_of_a_file_that_every_reader_takes(results):
    results["a"].save("out")
    path = Path("out/model.onnx")
    onnx.checker.check_model(path, full_check=True)
    (found,) = [entry.value for entry in onnx.load(path).metadata_props if entry.key == CONTENT_DIGEST]
    assert path.read_bytes().endswith(found.encode())
    assert read_content_digest(path) == found
    assert content_digest_holds(path, [])
    path.write_bytes(b"short")
    assert read_content_digest(path) == ""
    assert not content_digest_holds(path, [])


def test_weights_survive_the_way(results):
    results["a"].save("out", external=True)
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load("out/model.onnx").graph.initializer}
    assert all(np.asarray(w, np.float32).max() == 1.0 for w in weights.values())
