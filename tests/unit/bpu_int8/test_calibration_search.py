"""The observer of bpu-int8 where nobody chooses one: the vendor's candidates are compared on the first batch."""

import re
from collections import Counter

import dovetail
import numpy as np
import pytest
from dovetail.passes import Context, Request
from dovetail.plugin import hookimpl, load_plugins
from dovetail_bpu_int8 import calibration_search
from dovetail_bpu_int8.calibration_search import Compared
from dovetail_quantize.refining import layerwise, quantized_model
from dovetail_quantize.refining.quantized_model import QuantizedModel, quantized_model_of
from dovetail_quantize.refining.shared_session import SharedSession
from dovetail_runtime.data.data_split import Use, split_data
from dovetail_verify.runners import reference_runner

from .outliers import net, pictures


def calibrating(data):
    """The part of the data that calibrates where a search is made."""
    model = dovetail.open(net())
    run = reference_runner(model, Context(Request(), plugins=load_plugins()))
    return split_data(model, data, run, searched=True).part(Use.CALIBRATION)


def said(compiled):
    return [remark.why for remark in compiled.remarks if remark.rule == "observer" and not remark.node]


def test_the_observer_with_the_best_outputs_is_taken():
    compiled = dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures())
    (why,) = said(compiled)
    assert all(name in why for name in ("minmax", "percentile{percentile=99.995}", "kl"))
    best = why.removeprefix("calibrated with ").partition(":")[0]
    assert {held["source"].partition(" of ")[0] for held in compiled.plan.values["x"]} == {best.split()[-1]}
    snr = compiled.verification.worst_snr_db
    for observer in ("minmax", "kl"):
        other = dovetail.compile(net(), f"bpu-int8:march=bayes,observer={observer}", data=pictures())
        assert snr >= other.verification.worst_snr_db - 0.5


@pytest.mark.slow
def test_zero_points_are_compared_where_the_march_has_them_and_nobody_decides():
    def zero_points(backend, **options):
        compiled = dovetail.compile(net(), backend, data=pictures(), **options)
        return compiled, {str(held["format"]) for values in compiled.plan.values.values() for held in values}

    compiled, _ = zero_points("bpu-int8:march=bayes")
    assert "asymmetric kl" in said(compiled)[0]
    for backend in ("bpu-int8", "bpu-int8:march=bayes,activations=symmetric"):
        compiled, formats = zero_points(backend)
        assert "asymmetric" not in said(compiled)[0] and "int8[asymmetric]" not in formats
    compiled, formats = zero_points("bpu-int8:march=bayes,activations=asymmetric")
    assert "int8[asymmetric]" in formats and "int8[symmetric]" not in formats


@pytest.mark.slow
def test_biases_are_corrected_by_default_and_observers_are_compared_without():
    compiled = dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures())
    assert compiled.plan.summary["refined"]["steps"] == {"bpu-int8": ["bias"]}
    uncorrected = dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures(), refine="none")
    assert "refined" not in uncorrected.plan.summary
    (why,), (before,) = said(compiled), said(uncorrected)
    assert why.partition(": ")[2].startswith(before.partition(": ")[2])
    assert "with refined weights and biases" in why and "refined" not in before


@pytest.mark.parametrize("chosen", ["kl", "mse"])
def test_what_the_user_chooses_is_taken_without_a_search(chosen):
    compiled = dovetail.compile(net(), f"bpu-int8:march=bayes,observer={chosen}", data=pictures())
    assert not said(compiled)
    assert all(held["source"].startswith(chosen) for held in compiled.plan.values["x"])


def test_without_data_or_quantized_nodes_there_is_nothing_to_choose():
    assert not said(dovetail.compile(net(), ["bpu-int8", "cpu-bf16"], data=pictures(), pins=("*=cpu-bf16",)))
    assert not [remark for remark in dovetail.plan(net(), "bpu-int8").remarks if remark.rule == "observer"]


class Counted:
    """A plugin that counts the runs of every pass."""

    dovetail_api = 1

    def __init__(self):
        self.runs = Counter()

    @hookimpl
    def after_pass(self, pass_):
        self.runs[pass_.name] += 1


def searched(samples):
    plugins, counted = load_plugins(), Counted()
    plugins.attach(counted, "counted")
    (why,) = said(dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures(samples), plugins=plugins))
    assert why.count(" 0.") == 9  # six candidates, and the best three refined
    return why, counted.runs


@pytest.mark.slow
def test_candidates_of_a_scheme_share_their_decisions_and_equal_ones_are_compared_once():
    why, runs = searched(4)
    assert runs["place"] == 4  # two schemes, the result, and what the vendor's tool does by default
    assert runs["quantize"] == 1  # candidates run without what is made of the result
    found = re.findall(r"(?:asymmetric )?(?:minmax|percentile\{percentile=99.995\}) (0\.\d+)", why)
    assert all(found.count(cosine) % 2 == 0 for cosine in found), "the percentile clips none of so few numbers"
    assert (
        runs["calibrate"] <= 9
    )  # equal candidates are calibrated once, as the percentile clips none of so few numbers


@pytest.mark.slow
def test_candidates_with_different_parameters_are_all_calibrated():
    _, runs = searched(200)
    assert runs["calibrate"] == 10  # nine candidates and the result


@pytest.mark.slow
def test_candidates_of_a_scheme_share_one_quantized_model(monkeypatch):
    made, served = [], []

    def compared(model, ctx):
        found, alone = quantized_model_of(model, ctx), QuantizedModel(model, ctx)
        outputs = [reference_runner(one.model, ctx)(pictures(1)) for one in (found, alone)]
        assert outputs[0].keys() == outputs[1].keys()
        assert all(np.array_equal(array, outputs[1][name]) for name, array in outputs[0].items())
        assert list(alone.nodes) == list(found.nodes)
        if not any(found is other for other in made):
            made.append(found)
        served.append(found)
        return found

    for module in (quantized_model, layerwise):
        monkeypatch.setattr(module, "quantized_model_of", compared)
    dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures(200))
    assert len(made) == 2 and len(served) > 9  # one per scheme; comparisons and corrections of biases


def test_candidates_run_in_a_shared_session_as_if_each_was_loaded(monkeypatch):
    served, loaded = [], []
    shared, load = SharedSession.of, calibration_search._on_host

    def compared(session, quantized):
        run, alone = shared(session, quantized), load(quantized.model, Context(Request(), plugins=load_plugins()))
        feeds = pictures(1)
        assert all(np.array_equal(array, run(feeds)[name]) for name, array in alone(feeds).items())
        served.append(quantized)
        return run

    monkeypatch.setattr(SharedSession, "of", compared)
    monkeypatch.setattr(calibration_search, "_on_host", lambda *given: loaded.append(given) or load(*given))
    dovetail.compile(net(), "bpu-int8:march=bayes,activations=symmetric", data=pictures(8), refine="bias")
    assert len(served) > len(loaded)


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_the_result_takes_over_the_corrected_biases_of_the_best_candidate(scheme):
    def compiled_with(options, data, **more):
        steps = set()
        compiled = dovetail.compile(
            net(),
            f"bpu-int8:march=bayes,activations={scheme}{options}",
            data=data,
            progress=lambda what, done, total: steps.add(what),
            **more,
        )
        biases = [(remark.node, remark.why) for remark in compiled.remarks if remark.rule == "bias"]
        weights = {
            name: value.const_value.numpy().tobytes() for name, value in compiled.model.graph.initializers.items()
        }
        return compiled, steps, biases, weights

    compiled, searched, biases, weights = compiled_with("", pictures())
    best = said(compiled)[0].removeprefix("calibrated with ").partition(":")[0].split()[-1]
    named = f",observer={best.partition('{')[0]}"
    _, alone, expected, same = compiled_with(named, calibrating(pictures()), verify=False)
    assert biases and biases == expected and weights == same
    assert "correct biases" in alone and "correct biases" not in searched


@pytest.mark.parametrize(
    ("scaled", "refined", "named", "costs"),
    [
        (0.99, 0.995, False, False),
        (0.99, 0.9895, False, False),  # no more than chance
        (0.999, 0.99, False, True),
        (0.999, 0.99, True, False),  # asked for
    ],
)
def test_refinements_that_cost_accuracy_are_left_out_unless_they_are_named(scaled, refined, named, costs):
    assert Compared({"kl": scaled}, {"kl": refined}, named).refinements_cost == costs


@pytest.mark.slow
def test_the_result_has_no_refinements_where_they_cost_accuracy(monkeypatch):
    """Corrected biases are played to make the outputs worse."""
    from dovetail_bpu_int8.calibration_search import DecidedModels

    honest = DecidedModels.cosine

    def worse(models, request, *rest):
        cosine = honest(models, request, *rest)
        return cosine if request.options.get("refine", {}).get("steps") == [] else cosine - 0.05

    monkeypatch.setattr(DecidedModels, "cosine", worse)
    compiled = dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures())
    assert "are not refined, which costs accuracy here" in said(compiled)[0]
    assert "refined" not in compiled.plan.summary
    named = dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures(), refine="bias")
    assert named.plan.summary["refined"]["steps"] == {"bpu-int8": ["bias"]}


@pytest.mark.slow
def test_goals_and_the_ladder_start_from_the_best_observer():
    compiled = dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures(), ladder=0.9)
    assert said(compiled) and compiled.plan.summary["ladder"]["met"]
    assert said(dovetail.compile(net(), "bpu-int8:march=bayes", data=pictures(), min_cosine=0.9))


@pytest.mark.parametrize("outlier", [0, 8, 200])
def test_mix_takes_the_range_that_loses_less(outlier):
    from dovetail.plugin import Format, load_plugins

    registry, format_ = load_plugins().registry, Format.of("int8[symmetric]")
    numbers = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    numbers[0] = outlier or numbers[0]
    errors = {}
    for name in ("mix", "minmax", "kl"):
        observer = registry.observer[name](format_)
        observer.update(numbers)
        (scale,), _ = observer.parameters()
        errors[name] = float(np.sum((np.clip(np.rint(numbers / scale), -128, 127) * scale - numbers) ** 2))
    assert errors["minmax"] != errors["kl"]
    assert errors["mix"] == min(errors["minmax"], errors["kl"])


@pytest.mark.slow
def test_the_scales_of_the_search_are_those_of_the_chosen_observer_alone():
    def scales(compiled):
        return {name: [held.get("scale") for held in values] for name, values in compiled.plan.values.items()}

    rng = np.random.default_rng(7)
    data = {"x": rng.standard_t(3, (400, 4, 8, 8)).astype(np.float32)}  # long tails, and more numbers than are kept
    searched = dovetail.compile(net(), "bpu-int8:march=bayes", data=data)
    best = said(searched)[0].removeprefix("calibrated with ").partition(":")[0]
    *scheme, best = best.split()
    named = {"percentile{percentile=99.995}": "percentile,observer.percentile=99.995"}.get(best, best)
    named += ",activations=asymmetric" if scheme else ""
    backend = f"bpu-int8:march=bayes,observer={named}"
    alone = dovetail.compile(net(), backend, data=calibrating(data), verify=False)
    assert scales(searched) == scales(alone)
