"""What data has changed is saved beside the plan; a replay reads it, and is refused without it."""

import json
import shutil

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.planning import Plan

from .conftest import NET, with_weights

STEPS = "equalize,bias"


@pytest.fixture
def saved(compiled, installed, tmp_path):
    """A refined result, the folder that it was saved in, and the plugins."""
    plugins = installed()
    result = compiled(plugins=plugins, refine=STEPS)
    assert result.plan.summary["refined"]["changed"]
    result.save(tmp_path / "out")
    return result, tmp_path / "out", plugins


def weights_of(compiled):
    return {name: value.const_value.numpy().tobytes() for name, value in compiled.model.graph.initializers.items()}


def only_file(folder):
    (file,) = folder.glob("*.npz")
    return file


def test_the_file_is_named_by_its_content_in_plan_and_manifest(saved):
    import hashlib

    _, folder, _ = saved
    file = only_file(folder)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    summary = Plan.load(folder).summary
    assert file.name == summary["refined"]["file"] == f"refined-{digest[:12]}.npz"
    assert summary["files"] == {file.name: digest}
    assert json.loads((folder / "result.json").read_text())["files"][file.name]["sha256"] == digest


@pytest.mark.parametrize("named", ["folder", "file", "object"])
def test_a_replay_needs_no_data_and_gives_the_same_weights(saved, named):
    result, folder, plugins = saved
    plan = {"folder": folder, "file": folder / "plan.yaml", "object": result.plan}[named]
    again = dovetail.compile(with_weights(NET), plan=plan, plugins=plugins)
    assert weights_of(again) == weights_of(result)
    assert again.plan.values == {
        value: [entry | {"source": again.plan.values[value][i]["source"]} for i, entry in enumerate(entries)]
        for value, entries in result.plan.values.items()
    }
    assert again.plan.summary["refined"] == result.plan.summary["refined"]


def test_a_replay_of_a_replay(saved, tmp_path):
    result, folder, plugins = saved
    dovetail.compile(with_weights(NET), plan=folder, plugins=plugins).save(tmp_path / "second")
    shutil.rmtree(folder)
    third = dovetail.compile(with_weights(NET), plan=tmp_path / "second", plugins=plugins)
    assert weights_of(third) == weights_of(result)


def test_a_plan_saved_alone_takes_the_file_with_it(saved, tmp_path):
    result, folder, plugins = saved
    Plan.load(folder).save(tmp_path / "alone" / "plan.yaml")
    shutil.rmtree(folder)
    again = dovetail.compile(with_weights(NET), plan=tmp_path / "alone" / "plan.yaml", plugins=plugins)
    assert weights_of(again) == weights_of(result)


def test_a_result_that_is_loaded_and_saved_elsewhere_takes_the_file_with_it(saved, tmp_path):
    _, folder, plugins = saved
    dovetail.load(folder, plugins).save(tmp_path / "copy")
    assert only_file(tmp_path / "copy").read_bytes() == only_file(folder).read_bytes()
    assert not [remark for remark in dovetail.load(tmp_path / "copy", plugins).remarks if remark.rule == "altered"]


def test_a_new_result_removes_the_file_of_the_old_one(saved, compiled):
    _, folder, plugins = saved
    compiled(plugins=plugins).save(folder)
    assert not list(folder.glob("*.npz"))


def lost(file):
    file.unlink()


def edited(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(("damage", "says"), [(lost, "is missing"), (edited, "is not the file that was saved")])
def test_a_replay_without_its_file_is_refused(saved, damage, says):
    _, folder, plugins = saved
    damage(only_file(folder))
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(with_weights(NET), plan=folder, plugins=plugins)
    assert says in str(caught.value)
    assert "compile without --plan and give --data" in str(caught.value)
    dovetail.load(folder, plugins).run({"x": np.zeros((1, 4, 8, 8), np.float32)})  # the result itself is whole


def renamed(summary):
    summary["files"] = {"../refined.npz": "0"}


def unlisted(summary):
    del summary["files"]


def odd_steps(summary):
    summary["refined"]["steps"] = ["bias"]


def unknown_steps(summary):
    summary["refined"]["steps"]["npu"] = ["polish"]


EDITS = [
    (unlisted, "is missing"),
    (odd_steps, "'steps' is no mapping from backends to names"),
    (unknown_steps, "unknown refinement 'polish'"),
]


@pytest.mark.parametrize(("edit", "says"), EDITS)
def test_a_plan_that_was_edited(saved, edit, says):
    result, _, plugins = saved
    edit(result.plan.summary)
    result.plan.files = {}
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(with_weights(NET), plan=result.plan, plugins=plugins)
    assert says in str(caught.value)


def test_a_plan_that_names_a_file_elsewhere(saved):
    _, folder, plugins = saved
    plan = Plan.load(folder)
    renamed(plan.summary)
    plan.files = {}
    plan.save(folder / "plan.yaml")
    with pytest.raises(DovetailError, match="is not the name of a file in the folder"):
        dovetail.compile(with_weights(NET), plan=folder / "plan.yaml", plugins=plugins)


def test_a_replay_on_a_model_of_other_shapes(saved):
    _, folder, plugins = saved
    before = "float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2"
    wider = NET.replace(before, "float[6,4,3,3] w1, float[6] b1, float[4,6,3,3] w2")
    assert wider != NET
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(with_weights(wider), plan=folder, plugins=plugins)
    assert "plan" in str(caught.value) or "this model has" in str(caught.value)


def test_other_refinements_than_the_plan_was_made_with(saved, samples):
    _, folder, plugins = saved
    with pytest.raises(DovetailError, match="made with other refinements .npu: equalize, bias. than --refine asks for"):
        dovetail.compile(with_weights(NET), plan=folder, plugins=plugins, data=samples, refine="rounding")
    dovetail.compile(with_weights(NET), plan=folder, plugins=plugins, refine=STEPS)


def test_a_plan_of_a_model_that_was_not_refined(compiled, installed, samples):
    """Its scales hold for biases that are corrected, but not for weights that are scaled."""
    plugins = installed()
    plan = compiled(plugins=plugins).plan
    with pytest.raises(DovetailError, match="the plan has scales of a model without equalize"):
        compiled(plugins=plugins, plan=plan, refine="equalize")
    assert compiled(plugins=plugins, plan=plan, refine="bias").plan.summary["refined"]["changed"]["bias"] > 0


def test_the_default_of_a_backend_does_not_change_a_replay(compiled, installed):
    plan = compiled(plugins=installed()).plan
    result = compiled(plugins=installed(("place:", "refine: [equalize, bias]\nplace:")), plan=plan, data=None)
    assert "refined" not in result.plan.summary
