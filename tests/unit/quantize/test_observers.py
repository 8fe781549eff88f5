"""The observers, each against its definition computed by brute force."""

import numpy as np
import pytest
from dovetail.ir import Format
from dovetail.planning import Parameters
from dovetail_quantize.histogram import Histogram
from dovetail_quantize.integers import integer_bounds, quantize_array
from dovetail_quantize.observers.clipping import Entropy, MeanSquaredError, Percentile
from dovetail_quantize.observers.extremes import Isotone, MinMax

STATISTICAL = [MinMax, Percentile, MeanSquaredError, Entropy]
ALL = [*STATISTICAL, Isotone]
FORMATS = ["int8[symmetric]", "uint8[asymmetric]", "int8[asymmetric]", "int8[power-of-two]", "int4[symmetric]"]
DISTRIBUTIONS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "heavy tails": lambda rng, size: rng.standard_t(3, size),
    "one outlier": lambda rng, size: np.append(rng.standard_normal(size - 1), 1000),
    "behind a relu": lambda rng, size: np.maximum(rng.standard_t(3, size), 0),
    "all negative": lambda rng, size: -rng.exponential(1, size) - 3,
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
}
FEW, MANY = 900, 60_000  # kept as they are; in bins


def numbers(which, size, seed=0):
    return DISTRIBUTIONS[which](np.random.default_rng(seed), size).astype(np.float32)


def found(observer, text, *arrays, **options):
    made = observer(Format.of(text), **options)
    for array in arrays:
        made.update(array)
    return made.parameters()


def covered(text, parameters):
    """The real numbers at both ends of the integers."""
    smallest, largest = integer_bounds(Format.of(text))
    (scale,), (zero,) = parameters
    return (smallest - zero) * scale, (largest - zero) * scale


def restored(array, text, parameters):
    format_ = Format.of(text)
    integers = quantize_array(array, format_, parameters).astype(np.float64)
    (scale,), (zero,) = parameters
    return (integers - zero) * scale


@pytest.mark.parametrize("size", [FEW, MANY])
@pytest.mark.parametrize("which", DISTRIBUTIONS)
@pytest.mark.parametrize("share", [99.99, 99.0, 50.0, 100.0])
def test_percentile_leaves_out_the_outermost_numbers(which, share, size):
    array = numbers(which, size)
    width = 2.0 ** np.frexp(np.abs(array).max())[1] / 4096 if size == MANY else 1e-5
    low, high = covered("int8[symmetric]", found(Percentile, "int8[symmetric]", array, percentile=share))
    expected = np.quantile(np.abs(array), share / 100, method="inverted_cdf")
    expected = expected or np.abs(array).max()  # nothing but zeros: the rest is all there is
    assert high == pytest.approx(expected, rel=1e-6, abs=float(width)) and low == -high

    low, high = covered("uint8[asymmetric]", found(Percentile, "uint8[asymmetric]", array, percentile=share))
    ends = np.quantile(array, [(1 - share / 100) / 2, (1 + share / 100) / 2], method="inverted_cdf")
    step = (high - low) / 255  # the zero point moves both ends by half of it
    assert low == pytest.approx(min(ends[0], 0), abs=float(step + width + 2e-4 * np.ptp(ends)))
    assert high == pytest.approx(max(ends[1], 0), abs=float(step + width + 2e-4 * np.ptp(ends)))


@pytest.mark.parametrize("size", [FEW, MANY])
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.parametrize("which", DISTRIBUTIONS)
def test_mse_is_never_worse_than_minmax(which, text, size):
    array = numbers(which, size)
    errors = [
        np.mean((restored(array, text, found(observer, text, array)) - array) ** 2)
        for observer in (MeanSquaredError, MinMax)
    ]
    assert errors[0] <= errors[1] * (1 + 1e-6)


@pytest.mark.parametrize("which", ["normal", "heavy tails", "one outlier"])
def test_mse_is_near_the_best_of_all_thresholds(which):
    array, text = numbers(which, MANY), "int4[symmetric]"
    highest = np.abs(array).max()
    tried = [Parameters((highest * share / 7,), (0,)) for share in np.geomspace(1 / 256, 1, 400)]
    best = min(np.mean((restored(array, text, one) - array) ** 2) for one in tried)
    error = np.mean((restored(array, text, found(MeanSquaredError, text, array)) - array) ** 2)
    assert error <= best * 1.02


def divergence(array, threshold, side):
    """The definition in words: magnitudes in bins, everything beyond the threshold in its last bin, 127 levels."""
    width = 2.0 ** np.frexp(np.abs(array).max())[1] / side
    counts = np.bincount((np.abs(array) / width).astype(int), minlength=side).astype(float)
    counts[0] = 0
    inside, level = counts[:threshold], np.arange(threshold) * 127 // threshold
    cut = inside.copy()
    cut[-1] += counts[threshold:].sum()
    spread = np.zeros(threshold)
    for one in range(127):
        bins = np.flatnonzero((level == one) & (inside > 0))
        spread[bins] = inside[level == one].sum() / max(len(bins), 1)
    p, q = cut / cut.sum(), spread / spread.sum()
    q = np.where((q == 0) & (p > 0), 1 / cut.sum(), q)
    return sum(a * np.log(a / b) for a, b in zip(p, q) if a > 0), width


@pytest.mark.parametrize("which", ["normal", "heavy tails", "behind a relu"])
def test_kl_finds_the_threshold_with_the_smallest_divergence(which):
    array = numbers(which, MANY)
    _, high = covered("int8[symmetric]", found(Entropy, "int8[symmetric]", array))
    _, width = divergence(array, 127, 4096)
    reach = int(np.abs(array).max() / width) + 1
    tried = np.unique(np.linspace(127, reach, 128).astype(int))
    by_threshold = {one: divergence(array, one, 4096)[0] for one in tried}
    chosen = min(by_threshold, key=lambda one: abs(one * width - high))
    assert by_threshold[chosen] == pytest.approx(min(by_threshold.values()), rel=1e-9)


@pytest.mark.parametrize("observer", [Percentile, Entropy])
@pytest.mark.parametrize("text", FORMATS)
def test_an_outlier_does_not_set_the_range(observer, text):
    array = numbers("one outlier", MANY)
    _, high = covered(text, found(observer, text, array))
    assert high < 50


@pytest.mark.parametrize("text", ["int8[symmetric]", "uint8[asymmetric]", "uint8[symmetric]", "int8[power-of-two]"])
def test_isotone_keeps_the_largest_of_every_row_the_largest(text):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((500, 40))
    logits[np.arange(500), rng.integers(0, 40, 500)] += 6
    rows = np.exp(logits)
    rows = (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)
    parameters = found(Isotone, text, rows)
    integers = quantize_array(rows, Format.of(text), parameters).astype(int)
    best = np.sort(integers, axis=1)
    apart = np.sort(rows, axis=1)[:, -1] - np.sort(rows, axis=1)[:, -2] > parameters.scale[0]
    assert apart.mean() > 0.9
    assert (best[apart, -1] > best[apart, -2]).all()
    assert (integers.argmax(axis=1) == rows.argmax(axis=1))[apart].all()


def test_isotone_keeps_more_rows_than_minmax_where_one_number_is_large():
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 0.02, (200, 10)).astype(np.float32)
    rows[0, 0] = 1.0
    text = "int8[symmetric]"

    def kept(parameters):
        integers = np.sort(quantize_array(rows, Format.of(text), parameters), axis=1)
        return int((integers[:, -1] > integers[:, -2]).sum())

    assert kept(found(Isotone, text, rows)) > 1.5 * kept(found(MinMax, text, rows))


def test_isotone_votes_as_the_definition_says():
    rows = np.random.default_rng(1).dirichlet(np.ones(5), 300).astype(np.float32)
    two = np.sort(rows.astype(np.float64), axis=1)[:, -2:]
    (scale,), _ = found(Isotone, "int8[symmetric]", rows)

    def votes(one):
        return int(((two[:, 0] / 126.5 < one) & (one < two[:, 1] - two[:, 0])).sum())

    assert votes(scale) >= max(votes(2.0 ** (k / 8)) for k in range(-200, 8)) - 1


@pytest.mark.parametrize(
    ("text", "array", "says"),
    [
        ("int8[symmetric]", [[0.1, -0.2]], "-0.2 is negative"),
        ("int8[symmetric,axis=-1]", None, "rows along the last axis have one scale"),
        ("int8[symmetric,axis=1]", [[0.1, 0.2]], "the axis of the format is the last one"),
    ],
)
def test_isotone_says_what_it_cannot_do(text, array, says):
    with pytest.raises(ValueError, match=says):
        found(Isotone, text, np.array(array, np.float32))


@pytest.mark.parametrize("observer", ALL)
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.parametrize("size", [FEW, MANY])
def test_any_split_of_the_data_gives_the_same_parameters(observer, text, size):
    array = np.abs(numbers("heavy tails", size)).reshape(-1, 10)
    whole = found(observer, text, array)
    rng = np.random.default_rng(2)
    for _ in range(3):
        cuts = np.sort(rng.integers(0, len(array), rng.integers(1, 9)))
        portions = np.split(array[rng.permutation(len(array))], cuts)
        assert found(observer, text, *portions) == whole


@pytest.mark.parametrize("observer", STATISTICAL)
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric", "power-of-two"])
@pytest.mark.parametrize("size", [40, 40_000])
def test_every_slice_has_the_scale_that_it_would_have_alone(observer, scheme, size):
    rng = np.random.default_rng(0)
    array = (rng.standard_t(3, (3, size, 2)) * [[[1]], [[100]], [[0.01]]]).astype(np.float32)
    together = found(observer, f"int8[{scheme},axis=0]", array)
    alone = [found(observer, f"int8[{scheme}]", one) for one in array]
    # Several slices have wider bins than one, and a power of two is the next one or the same.
    apart = 1e-9 if size == 40 else 0.1 if scheme != "power-of-two" else 1.0
    assert together.scale == pytest.approx([one.scale[0] for one in alone], rel=apart)
    if size == 40:
        assert together.zero_point == tuple(one.zero_point[0] for one in alone)


@pytest.mark.parametrize("observer", STATISTICAL)
def test_groups_along_an_axis_have_a_scale_each(observer):
    array = np.random.default_rng(0).standard_t(3, (2, 6, 3)).astype(np.float32)
    parameters = found(observer, "int4[asymmetric,axis=1,group=2]", array)
    expected = [
        found(observer, "int4[asymmetric]", array[first, 2 * group : 2 * group + 2, last])
        for first in range(2)
        for group in range(3)
        for last in range(3)
    ]
    assert parameters.scale == tuple(one.scale[0] for one in expected)
    assert parameters.zero_point == tuple(one.zero_point[0] for one in expected)


@pytest.mark.parametrize("observer", STATISTICAL)
@pytest.mark.parametrize("text", ["int4[symmetric,axis=1,group=4]", "int8[symmetric,axis=3]"])
def test_slices_that_an_array_does_not_have(observer, text):
    with pytest.raises(ValueError, match="do not divide the extent 6|has no axis 3"):
        found(observer, text, np.ones((2, 6, 3), np.float32))


@pytest.mark.parametrize("observer", ALL)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_an_error(observer, number):
    array = np.ones((4, 5), np.float32)
    array[2, 3] = number
    with pytest.raises(ValueError, match="infinite or NaN"):
        found(observer, "int8[symmetric]", array)


@pytest.mark.parametrize("observer", ALL)
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.parametrize("size", [3, MANY])
@pytest.mark.parametrize("number", [0.0, 5.0, 1e-30])
def test_a_constant_is_held(observer, text, size, number):
    array = np.full((size, 1), number, np.float32)
    parameters = found(observer, text, array)
    assert parameters.scale[0] > 0
    assert restored(array[:1], text, parameters)[0, 0] == pytest.approx(number, rel=2e-3, abs=1e-37)


@pytest.mark.parametrize("observer", STATISTICAL)
def test_a_range_that_is_all_negative_holds_zero_too(observer):
    low, high = covered("uint8[asymmetric]", found(observer, "uint8[asymmetric]", numbers("all negative", MANY)))
    assert low < -5 and high == 0


@pytest.mark.parametrize("observer", ALL)
def test_nothing_seen(observer):
    with pytest.raises(ValueError, match="no number was seen"):
        found(observer, "int8[symmetric]", np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("observer", ALL)
def test_samples_with_other_slices(observer):
    first, second = np.ones((2, 3, 4), np.float32), np.ones((2, 5, 4), np.float32)
    with pytest.raises(ValueError, match="has 5 slices along the axis, others 3"):
        found(observer, "int8[symmetric,axis=1]", first, second)


@pytest.mark.parametrize("observer", ALL)
def test_samples_of_several_sizes_share_one_scale(observer):
    parts = np.random.default_rng(0).random((3, 4)), np.random.default_rng(1).random((2, 7, 5))
    assert len(found(observer, "int8[symmetric]", *(part.astype(np.float32) for part in parts)).scale) == 1


def test_a_histogram_that_grew_is_that_of_a_range_known_before():
    """The reason why one pass over the data is enough."""
    rng = np.random.default_rng(0)
    array = (rng.standard_normal((1, 50_000)) * np.geomspace(1e-4, 1e3, 50_000)).astype(np.float32)
    grown, known = Histogram(), Histogram()
    for portion in np.array_split(array, 7, axis=1):
        grown.update(portion)
    known.update(array)
    for one, other in zip(grown.bins(), known.bins()):
        assert np.array_equal(one, other)
    index, counts, (width,) = known.bins()
    expected = np.bincount((array[0].astype(np.float64) / width).astype(int) + index.size // 2, minlength=index.size)
    assert np.array_equal(counts[0], expected)


@pytest.mark.generated
@pytest.mark.parametrize("observer", [Percentile, MeanSquaredError, Entropy])
@pytest.mark.parametrize("text", ["int8[symmetric]", "uint8[asymmetric]", "int8[symmetric,axis=0]"])
@pytest.mark.parametrize("size", [300, MANY])
@pytest.mark.parametrize("which", DISTRIBUTIONS)
def test_the_numbers_of_a_relu_follow_from_those_of_its_input(observer, text, size, which):
    batches = [numbers(which, 2 * size, seed).reshape(2, -1) for seed in range(3)]
    derived, seen = observer(Format.of(text)), observer(Format.of(text))
    for batch in batches:
        derived.update_with_relu(batch)
        seen.update(batch)
        seen.update(np.maximum(batch, 0))
    assert derived.parameters() == seen.parameters()


def both_histograms(text, batches, **options):
    """The parameters of a percentile from the largest magnitudes, and from the histogram that it shares with others."""
    alone, sharing = Percentile(Format.of(text), **options), Percentile(Format.of(text), **options)
    MeanSquaredError(Format.of(text)).share(sharing)
    for batch in batches:
        alone.update(batch)
        sharing.update(batch)
    return alone.parameters(), sharing.parameters()


LATER = {
    "alike": [1] * 9,
    "growing": np.geomspace(1, 300, 9),
    "shrinking": np.geomspace(1, 1e-3, 9),
    "an outlier in between": [1, 1, 1, 1e4, 1, 1, 1],
    "blank": [1, *[0] * 90],
    "blank at first": [0, 0, 1, 1, 1],
    "tiny": [1, *[1e-38] * 5, 1],
}


@pytest.mark.generated
@pytest.mark.parametrize("percentile", [99.99, 99.999, 99.97, 99.5])
@pytest.mark.parametrize("scales", LATER)
@pytest.mark.parametrize("which", DISTRIBUTIONS)
def test_a_percentile_needs_only_the_largest_magnitudes(which, scales, percentile):
    batches = [numbers(which, 30_000, seed) * np.float32(scale) for seed, scale in enumerate(LATER[scales])]
    alone, sharing = both_histograms("int8[symmetric]", batches, percentile=percentile)
    assert alone == sharing


def test_a_percentile_covers_more_if_hundreds_of_batches_are_blank_after_the_first():
    batches = [numbers("normal", 30_000), *[np.zeros(30_000, np.float32)] * 300]
    alone, sharing = both_histograms("int8[symmetric]", batches)
    assert sharing.scale < alone.scale < found(MinMax, "int8[symmetric]", *batches).scale


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_percentile_sees_that_a_later_number_is_not_finite(number):
    batches = [numbers("normal", MANY, seed) for seed in range(3)]
    batches[2][-1] = number
    with pytest.raises(ValueError, match="infinite or NaN"):
        found(Percentile, "int8[symmetric]", *batches)


def test_memory_does_not_grow_with_the_data():
    import tracemalloc

    array = np.random.default_rng(0).standard_normal((1, 100_000)).astype(np.float32)
    seen = Histogram()
    seen.update(array)
    tracemalloc.start()
    for _ in range(20):
        seen.update(array)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 200_000 and peak < 5_000_000
