"""Plugins written for an earlier version: new names are said, all faults at once, and nothing else is affected."""

import sys
import textwrap
import warnings

import dovetail
import dovetail.plugin
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail.plugin.renamed import KINDS, NAMES
from onnx import parser

NET = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }'
YAML = """
backend: older-npu
device: npu
opset: 13..22
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {Relu: {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution `dovetail-older` with these lines in its hook, and these modules."""

    def install(*lines, **modules):
        package, facts = tmp_path / "dovetail_older", tmp_path / "dovetail_older-1.0.dist-info"
        package.mkdir()
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: dovetail-older\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[dovetail]\nolder = dovetail_older\n")
        body = "".join(f"    registry.{line}\n" for line in lines)
        text = (
            f"from dovetail.plugin import hookimpl\n\ndovetail_api = 1\n\n\n@hookimpl\ndef register(registry):\n{body}"
        )
        (package / "__init__.py").write_text(text)
        (package / "older.backend.yaml").write_text(YAML)
        for name, content in modules.items():
            (package / f"{name}.py").write_text(textwrap.dedent(content))
        monkeypatch.syspath_prepend(tmp_path)
        for name in [name for name in sys.modules if name.startswith("dovetail_older")]:
            monkeypatch.delitem(sys.modules, name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plugins = dovetail.load_plugins()
        return plugins, [str(one.message) for one in caught]

    return install


def test_all_faults_of_registering_are_said_at_once_with_the_new_names(installed):
    _, said = installed(
        'reducer("older-parts", "dovetail_older.parts:Parts")',
        'engine("older engine", "dovetail_older.engine:Engine")',
        'emiter("older-files", "dovetail_older.files:Files")',
        'solver("older-solver", "dovetail_older solver")',
    )
    (text,) = [line for line in said if "older" in line]
    assert "4 faults: there is no kind 'reducer'" in text
    for part in (
        "'older engine' may hold letters",
        "no kind 'emiter' (did you mean 'emitter'",
        "target 'dovetail_older sol",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("from dovetail_runtime.serialize import source_of", "which is dovetail_runtime.engine_source now"),
        ("from dovetail.plugin import Observed", "which is dovetail.plugin.Outcome now"),
        ("from dovetail_lowering import lower", "which is dovetail_transforms now"),
        ("import dovetail_results.store", "which is dovetail_onnx now"),
        ("import dovetail.plugin\ndovetail.plugin.Compile", "which is dovetail.plugin.Policy now"),
        ("from dovetail.plugin import Enginee", "(did you mean 'Engine'"),
    ],
)
def test_what_is_imported_by_an_old_name_is_told_the_new_one(installed, line, says):
    plugins, _ = installed('emitter("older-files", "dovetail_older.files:Files")', files=f"{line}\nclass Files: pass\n")
    with pytest.raises(DovetailError) as caught:
        plugins.registry.emitter["older-files"]
    assert says in caught.value.message and "No module named 'acme'" not in caught.value.message


def test_a_kind_works_under_its_old_name_with_a_warning(installed):
    plugins, said = installed('region_former("older-parts", "dovetail_older.parts:Parts")', parts="Parts = 1")
    assert "older-parts" in plugins.registry.partitioner
    assert (
        "the kind 'region_former' of dovetail-older is called 'partitioner' now; the old name works until 0.2" in said
    )


@pytest.mark.parametrize("old", NAMES)
def test_a_name_works_under_its_old_name_with_a_warning(old):
    new, until = NAMES[old]
    with pytest.warns(FutureWarning, match=f"plugin.{old} is called dovetail.plugin.{new} now.* works until {until}"):
        found = getattr(dovetail.plugin, old)
    assert found is getattr(dovetail.plugin, new)


@pytest.mark.parametrize("until", [until for _, until in [*NAMES.values(), *KINDS.values()]])
def test_old_names_are_removed_when_their_version_comes(until):
    assert tuple(map(int, dovetail.__version__.split(".")[:2])) < tuple(map(int, until.split(".")))


def test_names_of_others_are_left_to_their_own_messages(installed):
    plugins, _ = installed('emitter("older-files", "dovetail_older.files:Files")', files="import acme_tools.lower\n")
    with pytest.raises(DovetailError) as caught:
        plugins.registry.emitter["older-files"]
    assert "No module named 'acme_tools'" in caught.value.message and " now" not in caught.value.message


PASS = """
    from dataclasses import dataclass
    from dovetail.plugin import Pass

    @dataclass(frozen=True)
    class Look(Pass):
        name = "older-look"
        stage = "normalise"

        def run(self, model, ctx):
            return False
"""


def test_the_new_name_of_a_stage_is_said(installed):
    plugins, _ = installed('pass_("older-look", "dovetail_older.look:Look")', look=PASS)
    with pytest.raises(DovetailError, match="unknown stage 'normalise', which is 'normalize' now"):
        dovetail.compile(parser.parse_model(NET), "older-npu", plugins=plugins)


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("kind", ["pass_", "edit", "invariant", "kernel", "strategy", "engine", "option", "frontend"])
def test_a_backend_that_does_not_need_a_broken_plugin_is_not_affected(installed, kind):
    plugins, _ = installed(f'{kind}("older-thing", "dovetail_older.gone:Thing")')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = [dovetail.compile(parser.parse_model(NET), "cpu-bf16", plugins=plugins) for _ in range(2)]
    assert [one.coverage() for one in compiled] == ["cpu-bf16 1/1 node in 1 region; 0 conversions"] * 2
    said = [str(one.message) for one in caught if "left out" in str(one.message)]
    if kind in ("pass_", "invariant", "kernel"):  # an edit is loaded where one is asked for
        assert len(said) == 1, "once, not for every compilation"


def test_operators_of_a_broken_file_are_left_out(installed):
    plugins, said = installed('operators("older.ops", "dovetail_older:gone.yaml")')
    assert dovetail.compile(parser.parse_model(NET), "cpu-bf16", plugins=plugins).coverage().startswith("cpu-bf16 1/1")


def test_check_installed_lists_the_faults_of_a_plugin_that_was_left_out(installed, capsys):
    installed(
        'reducer("older-parts", "dovetail_older.parts:Parts")',
        'engine("older-engine", "dovetail_older.engine:Engine")',
        'emitter("older-files", "dovetail_older.files:Files")',
        engine="from dovetail_runtime.serialize import source_of\n",
        files="import acme_tools\n",
    )
    assert main(["check", "--installed", "dovetail-older"]) == 1
    said = capsys.readouterr().out
    for part in (
        "problem: ", "no kind 'reducer'", "problem: engine older-engine: ImportError",
        "which is dovetail_runtime.engine_source now", "problem: emitter older-files: ModuleNotFoundError",
    ):  # fmt: skip
        assert part in said
