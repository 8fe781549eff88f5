"""Which observer finds the scale of a value, with which options: the backend's file says so, or the request."""

import numpy as np
import pytest
from dovetail.errors import DovetailError, UsageError

from .conftest import NET

PLAIN = "q8: {dtype: int8, scheme: symmetric}"


def observed(text):
    """Let the file's `q8` name an observer."""
    return PLAIN, f"q8: {{dtype: int8, scheme: symmetric, observer: {text}}}"


def held(result, value="x"):
    return result.plan.values[value][0]


def covered(result, samples):
    """The share of the magnitudes of `x` that its range holds."""
    magnitudes = np.abs(samples["x"])
    return float(np.mean(magnitudes <= held(result)["scale"] * 127 * (1 + 1e-6)))


@pytest.mark.parametrize("percentile", [50, 90.5, 100])
def test_a_file_gives_options_to_an_observer(compiled, samples, percentile):
    result = compiled(NET, observed(f"{{name: percentile, percentile: {percentile}}}"))
    assert covered(result, samples) == pytest.approx(percentile / 100, abs=0.01)
    assert held(result)["source"] == f"percentile{{percentile={percentile}}} of 8 batches"


def test_a_name_alone_is_the_observer_with_its_defaults(compiled):
    short, long = (compiled(NET, observed(text)) for text in ("percentile", "{name: percentile}"))
    assert short.plan.values == long.plan.values


MISTAKES = [
    ("percntile", "unknown observer 'percntile' (did you mean 'percentile'?)"),
    ("{name: percntile}", "unknown observer 'percntile' (did you mean 'percentile'?)"),
    ("{name: percentile, precentile: 99}",
     "observer 'percentile' of dovetail-quantize has no option 'precentile' (did you mean 'percentile'?)"),
    ("{name: minmax, percentile: 99}", "observer 'minmax' of dovetail-quantize has no option 'percentile'"),
    ("{name: percentile, percentile: most}", "percentile: 'most' is no option of observer 'percentile'"),
    ("{name: percentile, percentile: true}", "percentile: True is no option of observer 'percentile'"),
    ("{name: percentile, percentile: 101}", "a percentile of 101 is not above 0 and up to 100"),
    ("{name: percentile, percentile: 0}", "a percentile of 0 is not above 0 and up to 100"),
    ("{name: percentile, percentile: [99]}", "one number or word is expected"),
    ("{percentile: 99}", "key 'name' is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), MISTAKES)
def test_a_mistake_is_named_with_file_and_line(compiled, text, says):
    with pytest.raises(DovetailError) as caught:
        compiled(NET, observed(text))
    assert str(caught.value).startswith("inline.yaml:7: ")
    assert says in str(caught.value)


OBSERVERS = """
from dovetail.plugin import Observer
from dovetail_quantize.observers.extremes import MinMax

class Scaled(Observer):
    def __init__(self, format_, *, by=1, how="up", **rest):
        self._all = MinMax(format_)
        self._by = by if how == "up" else 1 / by
    def update(self, array): self._all.update(array * self._by)
    def parameters(self): return self._all.parameters()
"""


@pytest.fixture
def with_scaled(installed, tmp_path, monkeypatch):
    """The installed plugins, a backend file with changes, and the observer `scaled`, which takes any keyword."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(*changes):
        plugins = installed(*changes, fresh=True)
        (tmp_path / "acme_scaled.py").write_text(OBSERVERS)
        with plugins.registry.on_behalf_of("dovetail-acme"):
            plugins.registry.observer("scaled", "acme_scaled:Scaled")
        return plugins

    return make


def test_options_of_a_third_party(compiled, with_scaled):
    one = compiled(plugins=with_scaled(observed("scaled")))
    three = compiled(plugins=with_scaled(observed("{name: scaled, by: 4, how: down, unknown: taken}")))
    assert held(three)["scale"] == held(one)["scale"] / 4


OTHER = "other: {dtype: int8, scheme: symmetric, observer: half}"


@pytest.mark.parametrize(
    ("options", "quantized_values"), [("{name: percentile, percentile: 99}", 1), ("percentile", 2)]
)
def test_uses_share_a_scale_if_observer_and_options_are_the_same(compiled, options, quantized_values):
    """Two types on two lines of the file say the same, or not."""
    changes = [observed("{name: percentile, percentile: 99}"), (OTHER, OTHER.replace("half", options))]
    net = NET.replace("float[1,8,4,4] y)", "float[1,8,4,4] y, float[1,4,8,8] m)")
    net = net.replace("[out]", "[times] m = Mul (x, x)\n  [out]")
    assert len(compiled(net, *changes).plan.values["x"]) == quantized_values


def test_a_request_chooses_the_observer_of_what_is_calibrated(compiled, installed, samples):
    """Whatever the file says; weights keep their observer."""
    plugins = installed(observed("kl"))
    chosen = compiled(backends="npu:observer=percentile,observer.percentile=80", plugins=plugins)
    assert covered(chosen, samples) == pytest.approx(0.8, abs=0.01)
    assert held(chosen)["source"] == "percentile{percentile=80} of 8 batches"
    assert held(chosen, "w1") == held(compiled(plugins=plugins), "w1")
    kept = chosen.plan.backends[0].options
    assert kept == {"observer": "percentile", "observer.percentile": "80"}, "a replay writes the same files by it"


def test_a_replay_needs_no_observer(compiled, installed, samples):
    plugins = installed()
    chosen = compiled(backends="npu:observer=percentile,observer.percentile=80", plugins=plugins)
    replayed = compiled(backends="npu", plan=chosen.plan, data=None, plugins=plugins)
    assert held(replayed)["scale"] == held(chosen)["scale"] != held(compiled(plugins=plugins))["scale"]
    assert held(replayed)["source"] == "replayed"


REQUESTS = [
    ("npu:observer=msee", DovetailError, "npu:observer=msee: unknown observer 'msee' (did you mean 'mse'?)"),
    ("npu:observer=mse,observer.steps=3", DovetailError, "observer 'mse' of dovetail-quantize has no option 'steps'"),
    ("npu:observer.percentile=99", UsageError, "has an option for an observer, and chooses none"),
    ("npu:observer=percentile,observer.percentile=high", DovetailError, "percentile: 'high' is no option"),
]


@pytest.mark.parametrize(("backend", "kind", "says"), REQUESTS)
def test_a_mistake_in_a_request(compiled, backend, kind, says):
    with pytest.raises(kind) as caught:
        compiled(backends=backend)
    assert says in str(caught.value)
