"""Both sides of every bound of the operator lists, with nodes that are made from the file itself."""

import pytest
from dovetail_schemas.operators import operator_names

from . import rows, samples

CASES = list(rows.cases())
SHAPES = [(march, kind, i) for march, kind in rows.taken() for i in range(len(rows.rule(march, kind).rows))]


def test_every_listed_operator_has_a_sample():
    assert {kind for _, kind in rows.taken()} - set(samples.SAMPLES) == set()


@pytest.mark.generated(one_of=12, others=8)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_limit_is_kept_and_broken(case):
    limit = rows.limit_of(case)
    for side, (kept, broken) in rows.search(case).items():
        assert kept is not None, f"nothing keeps {limit} ({side})"
        assert broken is not None, f"nothing breaks {limit} alone ({side})"
        (reason,) = broken.verdict.reasons
        assert reason.text.startswith(f"{limit.term.text} = "), "it names the term with the number found"
        assert f"allowed: {limit.range.text}" in reason.text
        assert reason.source == limit.source, "and the line of the row"
        if side:
            assert rows.gap(kept, broken, side) <= rows.tolerance(limit, kept), (kept.value, broken.value)


@pytest.mark.generated
@pytest.mark.parametrize("row", SHAPES, ids=lambda row: "-".join(map(str, row)))
def test_a_shape_fits_or_the_row_does_not_decide(row):
    march, kind, index = row
    assert rows.judged(march, kind, rows.start(march, kind, index), False)[1].ok
    for pattern, node in rows.misfits(row):
        verdict = rows.judge(march)(node, {"last": False})
        alone = len(rows.rule(march, kind).rows) == 1
        assert verdict.ok is False if alone else (verdict.ok is False or verdict.row != index), str(pattern)
        if verdict.ok is False and verdict.row is None:
            assert str(pattern) in verdict.reasons[0].text


@pytest.mark.parametrize("march", rows.MARCHES)
def test_a_guard_that_is_not_met_limits_nothing(march):
    """Of each guarded limit: with the guard out of the way, the value that breaks it is taken."""
    checked = 0
    for case in (case for case in CASES if case.march == march):
        block = rows.rule(march, case.kind).rows[case.row].blocks[case.block]
        if [limit.term.text for limit in block.when.limits] != ["region.last"]:
            continue
        for _, broken in rows.search(case).values():
            verdict = rows.judged(march, case.kind, broken.knobs, not broken.last)[1]
            assert rows.limit_of(case).source not in {reason.source for reason in verdict.reasons}
            checked += 1
    assert checked or march == "nash"


@pytest.mark.parametrize("march", rows.MARCHES)
def test_what_a_list_does_not_name_is_refused_and_what_it_calls_not_integrated_is_forbidden(march):
    backend = rows.backend(march)
    taken = {kind for _, kind in backend.listed() if backend.takes("", kind)}
    for kind in operator_names("") - taken:
        rule = backend.rule("", kind)
        assert rule.status == ("forbid" if kind in NOT_INTEGRATED - taken else "refuse"), kind


NOT_INTEGRATED = {
    "BitShift", "Celu", "Compress", "ConcatFromSequence", "ConvInteger", "Det", "DynamicQuantizeLinear", "Einsum",
    "GridSample", "Hardmax", "If", "IsInf", "IsNaN", "Loop", "MatMulInteger", "Mean", "MeanVarianceNormalization",
    "Mod", "Multinomial", "QLinearConv", "QLinearMatMul", "RandomNormal", "RandomNormalLike", "Scan", "Scatter",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shrink",
    "SplitToSequence", "StringNormalizer", "TfIdfVectorizer", "Unique", "Xor",
}  # fmt: skip
