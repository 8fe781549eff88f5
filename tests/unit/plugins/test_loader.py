import sys
import warnings

import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import PluginWarning, load_plugins

GOOD = 'registry.pass_("brick-pass", "brick_plugin:Brick")'


@pytest.fixture
def brick(install, plugin):
    """A plugin in good order, beside which others fail."""
    install("brick", {"brick": "brick_plugin"}, {"brick_plugin.py": plugin(register=GOOD)})


def record_of(plugins, name):
    return next(record for record in plugins.plugins if record.name == name)


def assert_broken(name, *parts):
    """The plugin is listed with its error, one warning is given, and the others work."""
    with pytest.warns(PluginWarning) as caught:
        plugins = load_plugins()
    record = record_of(plugins, name)
    assert record.status == "broken"
    for part in parts:
        assert part in record.error
    assert [str(w.message) for w in caught if name in str(w.message)] != []
    assert "brick-pass" in plugins.registry.pass_
    assert record_of(plugins, "brick").status == "ok"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DovetailError, match=f"plugin {name}"):
            load_plugins(strict=True)
    return plugins


def test_the_host_is_a_plugin_like_any_other(install):
    plugins = load_plugins()
    record = record_of(plugins, "host")
    assert (record.distribution, record.status, record.hooks) == ("dovetail-host", "ok", ("register",))
    assert plugins.registry.engine.entry("reference").owner == "dovetail-host"
    assert "host" in plugins.registry.backend
    without = load_plugins(block=["dovetail-host"]).registry
    assert not {"host", "onnxruntime-cpu", "reference"} & {*without.backend, *without.engine}


def test_records_say_who_brings_what(brick):
    plugins = load_plugins()
    assert record_of(plugins, "brick").as_dict() == {
        "name": "brick",
        "distribution": "brick",
        "version": "1.0",
        "target": "brick_plugin",
        "status": "ok",
        "error": "",
        "hooks": ["register"],
    }
    assert plugins.registry.pass_.entry("brick-pass")[:3] == ("brick-pass", "brick_plugin:Brick", "brick")


def test_plugins_come_sorted_whatever_the_path_says(install):
    install("brick", {"m2": "brick_m2", "m1": "brick_m1"}, {"brick_m1.py": "", "brick_m2.py": ""})
    install("acme", {"m3": "acme_m3", "m0": "acme_m0"}, {"acme_m3.py": "", "acme_m0.py": ""})
    names = [record.name for record in load_plugins().plugins]
    assert names == sorted(names)


def test_a_broken_import(brick, install):
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": "import acme_no_such_library"})
    assert_broken("acme", "does not import", "No module named 'acme_no_such_library'")


def test_an_import_that_exits(brick, install):
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": "raise SystemExit(3)"})
    assert_broken("acme", "does not import: SystemExit: 3")


def test_a_missing_module(brick, install):
    install("acme", {"acme": "acme_missing"})
    assert_broken("acme", "No module named 'acme_missing'")


def test_a_register_that_raises_leaves_nothing_behind(brick, install, plugin):
    body = 'registry.pass_("acme-pass", "acme_plugin:P"); 1 / 0'
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": plugin(register=body)})
    plugins = assert_broken("acme", "register: ZeroDivisionError")
    assert "acme-pass" not in plugins.registry.pass_


def test_a_kind_that_does_not_exist(brick, install, plugin):
    body = 'registry.pass_("acme-pass", "acme_plugin:P"); registry.dialects("pd", "acme_plugin:Pd")'
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": plugin(register=body)})
    plugins = assert_broken("acme", "there is no kind 'dialects'; a plugin may register pass_, strategy, ")
    assert "acme-pass" not in plugins.registry.pass_


def test_a_clash_of_names_names_both_distributions(brick, install, plugin):
    body = 'registry.pass_("mine", "carp_plugin:P"); registry.pass_("brick-pass", "acme_plugin:P")'
    install("carp", {"carp": "acme_plugin"}, {"acme_plugin.py": plugin(register=body)})
    plugins = assert_broken("carp", "'brick-pass'", "brick (brick_plugin:Brick)", "carp (acme_plugin:P)")
    assert plugins.registry.pass_.entry("brick-pass").owner == "brick"
    assert "mine" not in plugins.registry.pass_


def test_the_same_registration_twice_is_one(install, plugin):
    install("brick", {"brick": "brick_plugin"}, {"brick_plugin.py": plugin(register=f"{GOOD}; {GOOD}")})
    assert record_of(load_plugins(strict=True), "brick").status == "ok"


def test_one_distribution_found_twice_is_one_plugin(install, plugin):
    install("brick", {"brick": "brick_plugin"}, {"brick_plugin.py": plugin(register=GOOD)}, version="1.0")
    install("brick-copy", {"brick": "brick_plugin"})
    names = [record.name for record in load_plugins(strict=True).plugins]
    assert names.count("brick") == 1


def test_two_distributions_with_one_entry_point_name(brick, install, plugin):
    install("acme", {"brick": "zacme_plugin"}, {"zacme_plugin.py": ""})
    assert_broken("brick@acme", "brick (brick_plugin)", "acme (zacme_plugin)")


def test_blocking_the_first_frees_the_name(brick, install, plugin):
    install("acme", {"brick": "zacme_plugin"}, {"zacme_plugin.py": ""})
    plugins = load_plugins(block=["brick"], strict=True)
    assert (record_of(plugins, "brick").status, record_of(plugins, "brick@acme").status) == ("disabled", "ok")


@pytest.mark.parametrize(
    "line, way",
    [
        ("dovetail_api = 2", "pip install --upgrade dovetail-core"),
        ("dovetail_api = '1'", "install a version of it that was built for this one"),
    ],
)
def test_another_api_version(brick, install, plugin, line, way):
    source = plugin(register='registry.pass_("acme-pass", "acme_plugin:P")').replace("dovetail_api = 1", line)
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": source})
    plugins = assert_broken("acme", "is written for plugin API", f"this Dovetail has 1: {way}")
    assert "acme-pass" not in plugins.registry.pass_


def test_hooks_need_an_api_version(brick, install, plugin):
    source = plugin(register="pass").replace("dovetail_api = 1", "")
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": source})
    assert_broken("acme", "write dovetail_api = 1")


def test_a_misspelled_hook(brick, install, plugin):
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": plugin(after_pas="pass")})
    assert_broken("acme", "unknown hook 'after_pas' (did you mean 'after_pass'")


def test_a_hook_of_a_later_version_may_be_optional(install, plugin):
    source = plugin(after_everything="pass").replace("@hookimpl", "@hookimpl(optionalhook=True)")
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": source})
    assert record_of(load_plugins(strict=True), "acme").status == "ok"


def test_a_misspelled_argument(brick, install, plugin):
    source = plugin(register="pass").replace("register(registry)", "register(tables)")
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": source})
    assert_broken("acme", "PluginValidationError", "tables")


def test_a_wrapper(brick, install, plugin):
    source = plugin(register="yield").replace("@hookimpl", "@hookimpl(wrapper=True)")
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": source})
    assert_broken("acme", "is a wrapper")


@pytest.mark.parametrize("name", ["acme", "dovetail-acme"])
def test_what_is_blocked_is_not_even_imported(brick, install, name):
    install("dovetail-acme", {"acme": "acme_plugin"}, {"acme_plugin.py": "1 / 0"})
    record = record_of(load_plugins(block=[name], strict=True), "acme")
    assert (record.status, record.error) == ("disabled", "left out by request")
    assert "acme_plugin" not in sys.modules


def test_an_allow_list(brick, install, monkeypatch):
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": "1 / 0"})

    def status(plugins):
        return {r.name: r.status for r in plugins.plugins if r.name in ("host", "acme", "brick")}

    wanted = {"host": "disabled", "acme": "disabled", "brick": "ok"}
    assert status(load_plugins(allow=["brick"])) == wanted
    monkeypatch.setenv("DOVETAIL_PLUGINS", " brick ,")
    assert status(load_plugins()) == wanted
    assert status(load_plugins(allow=[])) == dict.fromkeys(("host", "acme", "brick"), "disabled")
    monkeypatch.setenv("DOVETAIL_PLUGINS", "")
    assert status(load_plugins())["brick"] == "disabled"


def test_names_of_plugins_that_are_not_installed(brick, monkeypatch):
    with pytest.raises(DovetailError, match=r"no plugin 'bric' is installed \(did you mean 'brick'"):
        load_plugins(block=["bric"])
    monkeypatch.setenv("DOVETAIL_PLUGINS", "bric")
    with pytest.raises(DovetailError, match="no plugin 'bric'"):
        load_plugins()


def test_a_backend_file_of_another_name_is_pointed_at(brick, install):
    files = {"acme_npu/__init__.py": "", "acme_npu/npu.yaml": "backend: acme-npu\nsummary: x\n"}
    install("dovetail-acme-npu", {"acme": "acme_npu"}, files)
    assert_broken("acme", "acme_npu/npu.yaml looks like a backend file", "its name must end in .backend.yaml")


def test_backend_files_need_no_python(install):
    files = {
        "acme_npu/__init__.py": "",
        "acme_npu/npu.backend.yaml": "# made by acme\nbackend: 'acme-npu'  # the first\nsummary: x\n",
        "acme_npu/more/big.backend.yaml": "backend: acme-npu-xl\n",
        "acme_npu/more/other.yaml": "not: a backend\n",
    }
    install("dovetail-acme-npu", {"acme-npu": "acme_npu"}, files)
    registry = load_plugins(strict=True).registry
    assert registry.backend.entry("acme-npu")[:3] == ("acme-npu", "acme_npu:npu.backend.yaml", "dovetail-acme-npu")
    assert registry.backend.entry("acme-npu-xl").target == "acme_npu:more/big.backend.yaml"
    assert registry.backend["acme-npu"].read_text().startswith("# made by acme")


def test_a_backend_file_without_a_name(brick, install):
    install("acme", {"acme": "acme_npu"}, {"acme_npu/__init__.py": "", "acme_npu/npu.backend.yaml": "ops: {}\n"})
    assert_broken("acme", "npu.backend.yaml: no line says 'backend: NAME'")


def test_a_file_that_is_refused_takes_along_what_its_plugin_registered(brick, install, plugin):
    source = plugin(register='registry.pass_("acme-pass", "acme_npu:P")')
    install(
        "acme", {"acme": "acme_npu"}, {"acme_npu/__init__.py": source, "acme_npu/npu.backend.yaml": "device: npu\n"}
    )
    plugins = assert_broken("acme", "npu.backend.yaml: no line says 'backend: NAME'")
    assert "acme-pass" not in plugins.registry.pass_


def test_a_backend_that_is_taken(brick, install):
    files = {"acme_npu/__init__.py": "", "acme_npu/npu.backend.yaml": "backend: host\n"}
    install("acme", {"acme": "acme_npu"}, files)
    plugins = assert_broken("acme", "backend 'host' is registered by dovetail-host", "and by acme")
    assert plugins.registry.backend.entry("host").owner == "dovetail-host"
