"""Which figures are warnings, which rows are scores, and what a typical row tells."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail_verify.compare import OutputVerification
from dovetail_verify.metrics import DifferenceSums
from dovetail_verify.output_comparison import OutputComparison

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def output(name="y", snr=40.0, top1=None, hits=None, **more):
    return OutputComparison(name, snr, 0.999, 0.1, top1, None, 0.0, hits, **more)


@pytest.mark.parametrize(
    ("figures", "warning"),
    [
        ({}, ""),
        ({"snr": 20.0}, ""),
        ({"snr": 19.9}, "'y': SNR 19.9 dB, below 20 dB"),
        ({"top1": 1.0}, ""),
        ({"top1": 0.9875, "answers": True}, "'y': another answer in 1.25 % of the rows"),
        ({"top1": 0.9875}, "'y': another element is the largest in 1.25 % of the rows"),
        ({"top1": 1.0, "hits": (0.9, 0.95)}, ""),
        ({"top1": 1.0, "hits": (0.95, 0.9)}, "'y': labels hit in 90.00 % of the rows, 95.00 % before"),
        (
            {"snr": 3.0, "top1": 0.5, "answers": True},
            "'y': SNR 3.0 dB, below 20 dB, another answer in 50.00 % of the rows",
        ),
        ({"snr": -np.inf, "non_finite": 1}, ""),
    ],
)
def test_what_is_a_warning(figures, warning):
    found = OutputVerification([output(**figures)])
    assert found.warnings == ([warning] if warning else [])
    assert found.as_dict()["warnings"] == found.warnings
    assert ("1 warning" in found.short()) == bool(warning)


def test_the_line_speaks_of_answers_where_rows_are_known_to_be_scores():
    assert output(top1=0.98, answers=True).line().endswith("max abs 0.1, top-1 agreement 98.00 %")
    assert output(top1=0.98).line().endswith("max abs 0.1, the largest element is the same in 98.00 % of the rows")


def test_random_inputs_are_worth_a_note():
    assert OutputVerification([output()], random=True).notes == [
        "random inputs prove little about real ones; --data measures on those"
    ]
    assert OutputVerification([output()]).notes == []


def shares(shape, seed=0):
    scores = np.exp(3 * np.random.default_rng(seed).standard_normal(shape))
    return (scores / scores.sum(axis=-1, keepdims=True)).astype(np.float32)


def compared(original, result):
    difference = DifferenceSums()
    difference.add(np.asarray(original, np.float32), np.asarray(result, np.float32))
    return difference


@pytest.mark.parametrize(
    ("array", "rows"),
    [
        (shares((2, 5, 7)), 10),  # a text recognizer: samples, time, classes
        (shares((6, 7)), 6),
        (np.random.default_rng(0).standard_normal((6, 7)), 6),
        (np.random.default_rng(0).standard_normal((2, 5, 7)), 0),  # features as likely as scores
        (-shares((2, 5, 7)), 0),
        (shares((2, 5, 7)) * 2, 0),
        (shares((2, 3, 5, 7)), 0),  # the weights of an attention
        (np.ones((2, 5, 1)), 0),
        (np.zeros((2, 0, 7)), 0),
    ],
)
def test_which_rows_are_scores(array, rows):
    assert compared(array, array).rows == rows


def test_answers_that_change_along_the_time_of_a_text():
    given = shares((1, 4, 3))
    changed = given.copy()
    changed[0, 2] = np.roll(given[0, 2], 1)
    found = compared(given, changed)
    assert (found.rows, found.same_top) == (4, 3)


def test_a_typical_row_is_not_decided_by_one_that_changed():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((200, 16))
    close = given * (1 + 1e-3 * rng.standard_normal(given.shape))
    wrong = close.copy()
    wrong[7] = -given[7]
    assert compared(given, close).typical_snr_db == pytest.approx(60, abs=2)
    assert compared(given, wrong).typical_snr_db == pytest.approx(60, abs=2)
    assert compared(given, wrong).snr_db < 25


def test_margins_of_shares_show_noise_that_the_shares_hide():
    scores = np.array([[30.0, 0.0, 0.0], [0.2, 0.0, -9.0]])
    given, result = (np.exp(s) / np.exp(s).sum(-1, keepdims=True) for s in (scores, scores * 1.1))
    assert compared(given[:1], result[:1]).snr_db > 100, "a share near to one stays there"
    assert compared(given[:1], result[:1]).typical_snr_db == pytest.approx(20, abs=0.1)
    assert compared(given, result).typical_snr_db == pytest.approx(20, abs=0.1)


def test_equal_results_are_exact_in_every_row():
    given = shares((3, 4))
    assert compared(given, given).typical_snr_db == np.inf
    assert compared(given, given[:, :3]).typical_snr_db == -np.inf


@pytest.mark.parametrize(("size", "said"), [(1.0, False), (1e15, True)])
def test_equal_numbers_behind_a_saturated_softmax_say_nothing_about_integers(size, said):
    """Scores of 1e15 make one of them 1 and all others 0, however the integers before are rounded."""
    data = [{"image": np.random.default_rng(n).uniform(0, size, (1, 1, 8, 8)).astype(np.float32)} for n in range(12)]
    compiled = dovetail.compile(DIGITS, "cpu-int8", data=data)
    notes = [note for note in compiled.verification.notes if "saturated" in note]
    assert bool(notes) is said
    assert not said or "'probabilities' holds nothing but -1, 0 and 1" in notes[0]
