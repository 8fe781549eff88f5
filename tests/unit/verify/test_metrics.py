"""How far two outputs are apart, on pairs whose answer is known."""

import math

import numpy as np
import pytest
from dovetail_verify.metrics import LEFT_OUT, UNKNOWN, DifferenceSums
from dovetail_verify.output_comparison import comparison_of


def compared(*pairs, **options):
    total = DifferenceSums()
    for original, result in pairs:
        total.add(np.asarray(original), np.asarray(result), **options)
    return total


FLOATS = [
    # original, result, SNR in dB, cosine, largest difference
    ([1.0, 1.0], [1.0, 1.0], math.inf, 1.0, 0.0),
    ([10.0, 0.0], [9.0, 0.0], 20.0, 1.0, 1.0),
    ([3.0, 4.0], [3.0, 4.5], 20.0, 0.99846, 0.5),
    ([1.0, 0.0], [0.0, 1.0], 10 * math.log10(1 / 2), 0.0, 1.0),
    ([1.0], [-1.0], 10 * math.log10(1 / 4), -1.0, 2.0),
    ([0.0, 0.0], [0.0, 0.0], math.inf, 1.0, 0.0),
    ([0.0, 0.0], [0.0, 1.0], -math.inf, 0.0, 1.0),
    ([1.0, 2.0], [1.0, np.nan], -math.inf, 1.0, 0.0),
    ([1.0, np.inf], [1.0, 5.0], -math.inf, 1.0, 0.0),
    ([1.0, np.inf], [1.0, np.inf], math.inf, 1.0, 0.0),
    ([1.0, np.nan], [1.0, np.nan], math.inf, 1.0, 0.0),
]


@pytest.mark.parametrize(("original", "result", "snr", "cosine", "max_abs"), FLOATS)
def test_floats(original, result, snr, cosine, max_abs):
    total = compared((original, result))
    assert total.snr_db == pytest.approx(snr)
    assert total.cosine == pytest.approx(cosine, abs=1e-4)
    assert total.max_abs == pytest.approx(max_abs)


def test_batches_add_up():
    whole = compared(([1.0, 2.0, 3.0], [1.0, 2.5, 3.0]))
    parts = compared(([1.0, 2.0], [1.0, 2.5]), ([3.0], [3.0]))
    assert (whole.snr_db, whole.cosine, whole.max_abs) == (parts.snr_db, parts.cosine, parts.max_abs)


def test_an_infinity_of_the_other_sign_is_no_match():
    assert compared(([1.0, np.inf], [1.0, -np.inf])).snr_db == -math.inf


def test_another_shape_breaks_all():
    total = compared((np.ones((2, 3)), np.ones((3, 2))))
    assert (total.snr_db, total.broken) == (-math.inf, 6)


@pytest.mark.parametrize(
    ("original", "result", "findings", "shared", "union"),
    [
        ([1, 2, 3], [3, 2, 1], "lists", 3, 3),  # the order does not matter
        ([1, 2, 3], [1, 2, 4], "lists", 2, 4),
        ([[1, 2], [3, 4]], [[2, 1], [4, 5]], "lists", 3, 5),  # a list per row
        ([[1, 2], [3, 4]], [[3, 4], [1, 2]], "lists", 0, 8),
        ([[0, 0, 5], [0, 1, 7]], [[0, 1, 7], [0, 0, 5]], "rows", 2, 2),  # a finding per row
        ([[0, 0, 5], [0, 1, 7]], [[0, 1, 7]], "rows", 1, 2),
        ([0, 1, 0, 1], [0, 1, 1, 1], "places", 3, 5),  # every element counts where it stands
        (7, 7, "places", 1, 1),
        (7, 8, "lists", 0, 2),
        ([True, False], [True, True], "places", 1, 3),
    ],
)
def test_findings_are_sets(original, result, findings, shared, union):
    total = compared((np.array(original), np.array(result)), findings=findings)
    assert (total.shared, total.union) == (shared, union)


def test_scores_have_tops_and_labels():
    original = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    result = np.array([[0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    total = compared((original, result), labels=np.array([0, 1, 1]))
    assert (total.rows, total.same_top) == (3, 2)
    assert (total.labeled, total.hits) == (3, [2, 1])


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3)])
def test_rows_of_logits_have_a_divergence_and_rows_of_probabilities_the_same_one(shape):
    shares = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]]), np.array([[0.4, 0.4, 0.2], [0.1, 0.8, 0.1]])
    nats = (shares[0] * np.log(shares[0] / shares[1])).sum() / 2
    logits = [np.log(rows) + 7 for rows in shares]  # a shift changes no distribution
    for pair in (shares, logits):
        total = compared([array.reshape(shape) for array in pair])
        assert total.kl / total.distributions == pytest.approx(nats)


def test_maps_and_single_columns_are_no_distributions():
    for shape in ((1, 2, 3, 4), (5, 1), (5,)):
        assert compared((np.ones(shape), np.zeros(shape))).distributions == 0


LOGITS = np.log(np.array([[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.6, 0.2, 0.2]]]))
WORSE = np.log(np.array([[[0.25, 0.55, 0.2], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.3, 0.3, 0.4]]]))


def test_the_perplexity_of_labels_is_that_of_known_answers():
    total = compared((LOGITS, WORSE), labels=np.array([0, 1, UNKNOWN, 0]))
    before, after = np.exp(-np.log([0.5, 0.8, 0.6]).mean()), np.exp(-np.log([0.25, 0.8, 0.3]).mean())
    assert total.perplexity == pytest.approx((before, after))
    assert (total.rows, total.same_top, total.labeled, total.hits) == (4, 1, 3, [3, 1])
    assert comparison_of("logits", total).perplexity_rise == pytest.approx(after / before - 1)


def test_rows_that_are_left_out_are_no_answers():
    padded = compared((LOGITS, WORSE), labels=np.array([0, 1, LEFT_OUT, LEFT_OUT]))
    alone = compared((LOGITS[:, :2], WORSE[:, :2]), labels=np.array([0, 1]))
    assert (padded.kl, padded.distributions, padded.rows) == (alone.kl, 2, 2)
    assert padded.perplexity == alone.perplexity
    assert compared((LOGITS, WORSE), labels=np.full(4, LEFT_OUT)).distributions == 0


def test_logits_of_three_axes_are_scores_where_labels_say_so():
    assert compared((LOGITS, WORSE)).rows == 0
    assert compared((LOGITS, WORSE)).perplexity is None
    assert compared((LOGITS, WORSE), scores=False).distributions == 0
