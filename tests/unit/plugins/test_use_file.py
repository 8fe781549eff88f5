"""Backend files that a user names by their path instead of installing them."""

import hashlib
import shutil
from pathlib import Path

import dovetail
import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import load_plugins
from dovetail.plugin.loading import names_file, use_file

FILE = """
backend: acme-npu
device: npu
opset: 13..26
options: {generation: ["1", "2"]}
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {Relu: {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme.backend.yaml").write_text(FILE)
    return load_plugins()


@pytest.mark.parametrize(
    ("text", "is_file"),
    [
        ("acme-npu", False),
        ("acme-npu:generation=2", False),
        ("./acme.backend.list", True),
        ("acme.backend.yaml", True),
        ("acme.yml:generation=2", True),
        ("/abs/acme.yaml", True),
    ],
)
def test_paths_are_told_from_names(text, is_file):
    assert names_file(text) is is_file


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu-bf16:a=b", "cpu-bf16:a=b"),
        ("./acme.backend.yaml", "acme-npu"),
        ("acme.backend.yaml:generation=2", "acme-npu:generation=2"),
    ],
)
def test_a_file_is_known_by_the_name_in_it(plugins, text, name):
    assert use_file(plugins.registry, text) == name
    assert use_file(plugins.registry, text) == name, "as often as it is named"


def test_a_colon_in_a_path_begins_no_options(plugins, tmp_path):
    (tmp_path / "a:b=c.backend.yaml").write_text(FILE)
    assert use_file(plugins.registry, "./a:b=c.backend.yaml") == "acme-npu"


@pytest.mark.parametrize("name", ["cpu-bf16", "host"])
def test_the_name_of_an_installed_backend_is_refused_naming_both(plugins, tmp_path, name):
    (tmp_path / "mine.yaml").write_text(FILE.replace("acme-npu", name))
    with pytest.raises(DovetailError, match=f"mine.yaml describes the backend '{name}', and so does dovetail-"):
        use_file(plugins.registry, "mine.yaml")
    assert plugins.registry.backend.entry(name).owner.startswith("dovetail-"), "and what is installed stays"


def test_two_files_of_one_name_are_refused(plugins, tmp_path):
    (tmp_path / "copy.yaml").write_text(FILE)
    use_file(plugins.registry, "acme.backend.yaml")
    with pytest.raises(
        DovetailError, match="copy.yaml describes the backend 'acme-npu', and so does .*acme.backend.yaml"
    ):
        use_file(plugins.registry, "copy.yaml")


@pytest.mark.parametrize(
    ("text", "content", "error"),
    [
        ("none.yaml", None, UsageError),
        (".", None, DovetailError),
        ("./", None, UsageError),
        ("bad.yaml", "backend: a b\n", DovetailError),
        ("bad.yaml", "{", DovetailError),
        ("bad.yaml", "\x00", DovetailError),
        ("bad.yaml", "backend: " + "n" * 1_000_000, DovetailError),
        ("./model.onnx", "", DovetailError),
    ],
)
def test_bad_files(plugins, tmp_path, text, content, error):
    if content is not None:
        (tmp_path / text).write_text(content)
    with pytest.raises(error):
        dovetail.plan("x.onnx", use_file(plugins.registry, text), plugins=plugins)


def versions(compiled):
    """The notes on what differs from the backends of the plan."""
    return [note for note in compiled.notes() if "the plan was made" in note]


def test_a_plan_knows_name_and_content_of_the_file_and_the_result_keeps_it(plugins, tmp_path):
    text = '<ir_version: 9, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu (x) }'
    (tmp_path / "m.onnxtxt").write_text(text)
    file = tmp_path / "acme.backend.yaml"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    dovetail.compile("m.onnxtxt", "./acme.backend.yaml").save("out")
    shutil.copy("out/plan.yaml", "plan.yaml")
    texts = [path.read_text() for path in Path("out").iterdir() if path.name != "model.onnx"]
    assert not any(str(tmp_path) in text for text in texts)
    file.rename(tmp_path / "elsewhere.backend.yaml")

    (entry,) = dovetail.load("out").plan.backends
    assert (entry.distribution, entry.sha256) == ("acme.backend.yaml", digest)
    for plan in ("out", "out/plan.yaml"):
        again = dovetail.compile("m.onnxtxt", plan=plan)
        assert again.plan.nodes[0].backend == "acme-npu" and not versions(again)
    with pytest.raises(DovetailError, match="the plan was made with the file acme.backend.yaml\n  name the file"):
        dovetail.compile("m.onnxtxt", plan="plan.yaml")
    given = dovetail.compile("m.onnxtxt", "./elsewhere.backend.yaml", plan="plan.yaml")
    assert versions(given) == [
        "the plan was made with 'acme-npu' of acme.backend.yaml; here it is that of elsewhere.backend.yaml"
    ]


def test_a_file_that_was_edited_is_not_that_of_the_plan(plugins, tmp_path):
    text = '<ir_version: 9, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) { y = Relu (x) }'
    (tmp_path / "m.onnxtxt").write_text(text)
    dovetail.compile("m.onnxtxt", "./acme.backend.yaml").save("out")
    with (tmp_path / "out" / "acme.backend.yaml").open("a") as file:
        file.write("# edited\n")
    with pytest.raises(DovetailError, match="name the file with --backend"):
        dovetail.load("out")
    given = dovetail.compile("m.onnxtxt", "./out/acme.backend.yaml", plan="out")
    assert "'acme-npu' of another content of acme.backend.yaml" in versions(given)[0]
