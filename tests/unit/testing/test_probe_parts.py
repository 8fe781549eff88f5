"""A probe on several machines finds what one finds, and nothing is tried twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from dovetail.errors import DovetailError
from dovetail_runtime.data_workers import DataWorkers
from dovetail_testing.probe import parts
from dovetail_testing.probe.probing import probe

ENGINE, OPERATORS = "reference", ("Floor", "Sign")


@pytest.mark.slow
def test_parts_find_what_one_process_finds(tmp_path):
    alone = probe(ENGINE, state=tmp_path / "alone", operators=OPERATORS)
    with ThreadPoolExecutor(2) as executor:
        parts.probe_in_parts(DataWorkers(executor), ENGINE, tmp_path / "together", operators=OPERATORS)
    together = probe(ENGINE, state=tmp_path / "together", operators=OPERATORS)
    assert (together.tried, together.resumed) == (0, alone.tried)
    assert together.rules == alone.rules


def test_where_the_engine_is_on_workers_alone_their_outcomes_are_all_that_is_known(tmp_path):
    state = tmp_path / "state"
    there = probe(ENGINE, state=state, operators=("Sign",))
    here = probe(ENGINE, state=state, operators=("Sign",), elsewhere=ENGINE)
    assert (here.tried, here.rules, here.unfinished) == (0, there.rules, [])
    lines = state.read_text().splitlines()
    state.write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    before = state.read_bytes()
    assert probe(ENGINE, state=state, operators=("Sign",), elsewhere=ENGINE).unfinished == ["Sign"]
    assert state.read_bytes() == before
    state.write_text("a letter")
    with pytest.raises(DovetailError, match="is not the state of a probe"):
        probe(ENGINE, state=state, elsewhere=ENGINE)


@pytest.mark.parametrize("known", ["", "head\nmine\n", "other\nmine\n"], ids=["nothing", "the same", "another engine"])
def test_outcomes_are_added_to_those_of_an_earlier_run(known, tmp_path, monkeypatch):
    state = tmp_path / "state"
    if known:
        state.write_text(known)
    monkeypatch.setattr(parts, "_probed", lambda task: ["head", *task["operators"]])
    with ThreadPoolExecutor(1) as executor:
        parts.probe_in_parts(DataWorkers(executor), ENGINE, state, operators=OPERATORS)
    kept = ["mine"] if known.startswith("head") else []
    assert state.read_text().splitlines() == ["head", *kept, *OPERATORS]


def test_machines_with_other_versions(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "_probed", lambda task: task["operators"])
    with ThreadPoolExecutor(1) as executor, pytest.raises(DovetailError, match="in different versions"):
        parts.probe_in_parts(DataWorkers(executor), ENGINE, tmp_path / "state", operators=OPERATORS)
