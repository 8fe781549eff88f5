"""Every hook at work; `test_documentation.py` fails when a hook has no test here."""

import sys

import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Pass, Pipeline, Request
from dovetail.plugin import PluginWarning, load_plugins


class Other(Pass):
    name = "other"

    def run(self, model, ctx):
        return False


@pytest.fixture
def load(install, plugin):
    """Install a plugin with the given hook bodies and load it; returns the set and the plugin's list `seen`."""

    def installed(**bodies):
        install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": plugin(**bodies)})
        plugins = load_plugins(strict=True)
        return plugins, sys.modules["acme_plugin"].seen

    return installed


def acme(plugins):
    return next(record for record in plugins.plugins if record.name == "acme")


def test_hook_register(load):
    plugins, _ = load(register='registry.strategy("nearest", "acme_plugin:Nearest")')
    assert plugins.registry.strategy.entry("nearest")[:3] == ("nearest", "acme_plugin:Nearest", "acme")


def test_hook_before_opening(load):
    plugins, seen = load(before_opening="seen.append(list(registry.strategy))")
    plugins.prepare()
    assert seen == [list(plugins.registry.strategy)]


def test_hook_opened(load):
    plugins, seen = load(opened="seen.append((model, registry))")
    assert plugins.extend("m") == "m" and seen == [("m", plugins.registry)]


def test_hook_configure_pipeline(load):
    plugins, _ = load(configure_pipeline="pipeline.steps.append(request.solver)")
    pipeline = Pipeline([Other()])
    plugins.configure(pipeline, Request(solver="fixpoint"))
    assert pipeline.steps == [Other(), "fixpoint"]


def test_hook_before_pass(load):
    plugins, seen = load(before_pass="seen.append((pass_.name, model))")
    plugins.call("before_pass", pass_=Other(), model="m")
    assert seen == [("other", "m")]


def test_hook_after_pass(load):
    plugins, seen = load(after_pass="seen.append((pass_.name, model, result))")
    plugins.call("after_pass", pass_=Other(), model="m", result="r")
    assert seen == [("other", "m", "r")]


def test_hook_pass_failed(load):
    plugins, seen = load(pass_failed="seen.append((pass_.name, model, str(error)))")
    plugins.call("pass_failed", pass_=Other(), model="m", error=ValueError("e"))
    assert seen == [("other", "m", "e")]


def test_a_hook_takes_only_the_arguments_it_names(install, plugin):
    source = plugin(before_pass="seen.append(pass_)").replace("before_pass(pass_, model)", "before_pass(pass_)")
    install("acme", {"acme": "acme_plugin"}, {"acme_plugin.py": source})
    load_plugins(strict=True).call("before_pass", pass_=1, model=2)
    assert sys.modules["acme_plugin"].seen == [1]


def test_a_raising_hook_breaks_its_plugin_once_and_nothing_else(load):
    plugins, seen = load(before_pass="seen.append(1); raise KeyError('k')", after_pass="seen.append(2)")
    with pytest.warns(PluginWarning, match="plugin acme .acme.: before_pass raised KeyError: 'k'") as caught:
        plugins.call("before_pass", pass_=Other(), model=None)
        plugins.call("after_pass", pass_=Other(), model=None, result=None)
        plugins.call("before_pass", pass_=Other(), model=None)
    assert (len(caught), seen, acme(plugins).status) == (1, [1], "broken")


def test_a_raising_configure_loses_its_changes(load):
    plugins, _ = load(configure_pipeline="pipeline.steps.clear(); 1 / 0")
    pipeline = Pipeline([Other()])
    with pytest.warns(PluginWarning, match="configure_pipeline raised ZeroDivisionError"):
        plugins.configure(pipeline, Request())
    assert pipeline.steps == [Other()]


def test_a_plugin_may_refuse_a_request(load):
    plugins, _ = load(
        configure_pipeline="from dovetail.errors import DovetailError; raise DovetailError('no data was given')"
    )
    with pytest.raises(DovetailError, match="no data was given"):
        plugins.configure(Pipeline(), Request())


def test_hooks_run_in_the_order_of_names(install, plugin):
    for name in ("acme", "brick"):
        body = f"model.append('{name}')"
        install(name, {name: f"{name}_plugin"}, {f"{name}_plugin.py": plugin(before_pass=body, after_pass=body)})
    plugins, order = load_plugins(strict=True), []
    plugins.call("before_pass", pass_=Other(), model=order)
    plugins.call("after_pass", pass_=Other(), model=order, result=None)
    assert order == ["acme", "brick", "acme", "brick"]


def test_a_plugin_of_the_program_itself():
    from dovetail.plugin import hookimpl

    class Mine:
        dovetail_api = 1
        seen = []

        @hookimpl
        def before_pass(self, pass_):
            self.seen.append(pass_.name)

        @hookimpl
        def register(self, registry):
            registry.strategy("mine", "module:Strategy")

    plugins = load_plugins()
    plugins.attach(Mine(), "mine")
    plugins.call("before_pass", pass_=Other(), model=None)
    assert Mine.seen == ["other"]
    assert plugins.registry.strategy.entry("mine").owner == "this program"
    with pytest.raises(DovetailError, match="there is a plugin 'mine' already"):
        plugins.attach(Mine(), "mine")

    class Undeclared:
        @hookimpl
        def before_pass(self, pass_):
            pass

    with pytest.raises(DovetailError, match="plugin odd .this program.: declares no API version"):
        plugins.attach(Undeclared(), "odd")
