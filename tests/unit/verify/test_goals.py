"""Goals: which numbers are some, and which outputs meet them."""

import math

import dovetail
import numpy as np
import pytest
from dovetail.errors import UsageError
from dovetail_onnx.opening import open_text
from dovetail_verify.accuracy import Goals
from dovetail_verify.compare import OutputVerification
from dovetail_verify.output_comparison import OutputComparison


def output(name="y", snr=40.0, cosine=0.9999, max_abs=0.1, top1=None, **more):
    return OutputComparison(name, snr, cosine, max_abs, top1, None, 0.0, typical_snr_db=snr, **more)


def indices(equal=1.0, decibels=math.inf, name="indices", max_abs=0.0, **more):
    return OutputComparison(name, None, None, max_abs, None, equal, equal, agreement_db=decibels, **more)


INDICES = indices()


def missed(outputs, **goals):
    return [(miss.output, miss.figure, miss.goal) for miss in Goals(**goals).missed(OutputVerification(list(outputs)))]


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ({"min_snr": 30}, {"min_snr": 30.0}),
        ({"min_snr": "30.5"}, {"min_snr": 30.5}),
        ({"min_cosine": 0.99, "max_abs": 1e-3}, {"min_cosine": 0.99, "max_abs": 1e-3}),
        ({"min_top1": 1}, {"min_top1": 1.0}),
        ({"min_top1": 0.99}, {"min_top1": 0.99}),
        ({"min_top1": "99%"}, {"min_top1": 0.99}),
        ({"min_top1": "1%"}, {"min_top1": 0.01}),
        ({"min_snr": 0}, {"min_snr": 0.0}),
        ({"max_kl": "1e-3"}, {"max_kl": 0.001}),
        ({"max_perplexity_rise": "1%"}, {"max_perplexity_rise": 0.01}),
        ({"max_perplexity_rise": 2.5}, {"max_perplexity_rise": 2.5}),
        ({}, {}),
    ],
)
def test_goals_are_numbers_or_texts(given, understood):
    goals = Goals(**given)
    assert goals.as_dict() == understood
    assert Goals(**goals.as_dict()) == goals
    assert bool(goals) == bool(understood)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("min_snr", value) for value in (-1, math.nan, math.inf, -math.inf, "high", "", True, [30])),
        *(("min_cosine", value) for value in (-0.1, 1.01, math.nan, "99%")),
        *(("min_top1", value) for value in (-0.1, 1.01, 99, "101%", "-1%", "nan%", math.nan, "%")),
        *(("max_abs", value) for value in (0, -1e-3, math.nan, math.inf)),
        *(("max_kl", value) for value in (0, -1e-3, math.nan, math.inf, "none")),
        *(("max_perplexity_rise", value) for value in (0, "0%", -0.1, math.nan, math.inf, "%")),
    ],
)
def test_what_is_no_goal(name, value):
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} .* is no goal"):
        Goals(**{name: value})


@pytest.mark.parametrize(
    ("figures", "goals", "found"),
    [
        ({}, {"min_snr": 40}, []),
        ({}, {"min_snr": 40.1}, [("y", "SNR 40.0 dB", "--min-snr 40.1")]),
        ({"snr": math.inf}, {"min_snr": 300}, []),
        ({}, {"min_cosine": 0.9999}, []),
        ({}, {"min_cosine": 1}, [("y", "cosine 0.9999", "--min-cosine 1")]),
        ({}, {"max_abs": 0.1}, []),
        ({}, {"max_abs": 0.01}, [("y", "max abs 0.1", "--max-abs 0.01")]),
        ({"kl": 0.01}, {"max_kl": 0.01}, []),
        ({"perplexity": (10.0, 10.1)}, {"max_perplexity_rise": 0.011}, []),
        ({"perplexity": (10.0, 9.0)}, {"max_perplexity_rise": 0.001}, []),
        (
            {"perplexity": (10.0, 10.3)},
            {"max_perplexity_rise": "1%"},
            [("y", "a perplexity that is 3 % higher", "--max-perplexity-rise 0.01")],
        ),
        ({"kl": 0.02}, {"max_kl": 0.01}, [("y", "KL 0.02 nats per row", "--max-kl 0.01")]),
        ({"top1": 0.99}, {"min_top1": "99%"}, []),
        ({"top1": 0.98}, {"min_top1": "99%"}, [("y", "top-1 agreement 98.00 %", "--min-top1 0.99")]),
        (
            {"top1": 0.5},
            {"min_snr": 50, "min_top1": 1},
            [("y", "SNR 40.0 dB", "--min-snr 50"), ("y", "top-1 agreement 50.00 %", "--min-top1 1")],
        ),
        (
            {"snr": -math.inf, "non_finite": 3},
            {"max_abs": 1},
            [("y", "another shape or elements that are no numbers", "--max-abs 1")],
        ),
    ],
)
def test_which_outputs_miss(figures, goals, found):
    assert missed([INDICES, output(**figures)], **goals) == found


def test_every_float_output_must_meet_them():
    outputs = [output("a", 50), output("b", 20), output("c", 10)]
    assert [name for name, *_ in missed(outputs, min_snr=30)] == ["b", "c"]
    assert missed(outputs) == []


def test_a_goal_that_nothing_can_be_measured_on():
    with pytest.raises(UsageError, match="no output holds rows of scores, so --min-top1 1 cannot be measured"):
        missed([output()], min_top1=1)
    assert missed([output("map"), output("scores", top1=1.0)], min_top1=1) == []


@pytest.mark.parametrize(
    ("share", "goals", "found"),
    [
        (0.0, {"min_snr": 60, "min_cosine": 1, "min_top1": 1, "max_abs": 1e-3}, []),
        (0.02, {"min_snr": 30}, []),
        (0.05, {"min_snr": 30}, [("indices", "5.0 % of the elements differ", "--min-snr 30")]),
        (0.05, {"min_cosine": 0.99}, []),
        (0.05, {"min_cosine": 0.9999}, [("indices", "5.0 % of the elements differ", "--min-cosine 0.9999")]),
        (0.05, {"min_top1": 0.9}, []),
        (0.05, {"min_top1": "99%"}, [("indices", "5.0 % of the elements differ", "--min-top1 0.99")]),
        (0.05, {"max_abs": 1}, [("indices", "max abs 3", "--max-abs 1")]),
    ],
)
def test_integers_truth_values_and_strings_count(share, goals, found):
    one = indices(1 - share, -20 * math.log10(share) if share else math.inf, max_abs=3.0 if share else 0.0)
    assert missed([one], **goals) == found
    assert missed([output(snr=80, cosine=1, max_abs=0, top1=1), one], **goals) == found


@pytest.mark.parametrize(
    ("type_", "shape", "goals", "says"),
    [
        ("float", (3, 2, 3, 4), {"min_top1": 0.9}, "no output holds rows of scores"),
        ("float", (3, 2, 3, 4), {"max_kl": 0.9}, "no output holds rows of scores, so --max-kl 0.9 cannot be measured"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_pass(type_, shape, goals, says):
    declared = f"{type_}[{','.join(map(str, shape))}]"
    text = f'<ir_version: 10, opset_import: ["": 22]> g ({declared} x) => ({declared} y) {{ y = Abs (x) }}'
    data = {"x": np.ones(shape, "float32")}
    started = []
    with pytest.raises(UsageError, match=says):
        dovetail.compile(open_text(text, "t"), "host", data=data, progress=lambda *step: started.append(step), **goals)
    assert not started


def test_a_goal_that_the_original_misses_against_the_labels_says_so():
    verification = OutputVerification([output(top1=1.0, hits=(0.9, 0.9)), output("other", top1=1.0, hits=(0.99, 0.9))])
    assert Goals(min_top1="95%").doubts(verification) == [
        "'y': the original itself hits only 90.00 % of the labels; --min-top1 0.95 asks for the original's answers, "
        "not for the labels"
    ]
    assert Goals(min_snr=30).doubts(verification) == []


@pytest.mark.parametrize("command", ["compile", "verify", "bisect", "tune"])
def test_two_values_of_one_goal_contradict_each_other(command, capsys):
    from dovetail.cli.main import main

    assert main([command, "model.onnx", "--max-kl", "0.1", "--max-kl", "0.2"]) == 2
    said = capsys.readouterr().err
    assert "--max-kl 0.1 and --max-kl 0.2 contradict each other" in said and "leave one of them out" in said
