"""The journal: entries of one request on one machine, resumed after an interruption."""

import copy
import json

import pytest
from dovetail.errors import DovetailError
from dovetail_tune.journal import Journal

KEY = {"model": "m", "data": "d", "goals": "--min-snr 30", "processor": "p", "versions": "v"}


def test_a_run_that_is_resumed_finds_what_was_tried(tmp_path):
    Journal(tmp_path / "j", KEY).record("segment", "host", seconds=2.0)
    again = Journal(tmp_path / "j", KEY)
    assert again.find("segment", "host") == {"kind": "segment", "name": "host", "seconds": 2.0}
    assert again.find("segment", "cpu-bf16") is None and again.others == ""


def test_the_last_entry_counts(tmp_path):
    journal = Journal(tmp_path / "j", KEY)
    journal.record("segment", "host", seconds=1.0)
    journal.record("segment", "host", seconds=2.0)
    assert Journal(tmp_path / "j", KEY).find("segment", "host")["seconds"] == 2.0


@pytest.mark.parametrize(
    ("changed", "text"),
    [("processor", "another processor"), ("versions", "other versions of what computes"), ("model", "another model")],
)
def test_figures_of_something_else_are_not_used_and_the_difference_is_named(tmp_path, changed, text):
    Journal(tmp_path / "j", KEY).record("segment", "host", seconds=1.0)
    other = Journal(tmp_path / "j", {**KEY, changed: "x"})
    assert other.find("segment", "host") is None and other.others == text
    other.record("segment", "host", seconds=3.0)
    assert Journal(tmp_path / "j", KEY).find("segment", "host") is not None  # both are kept


def test_half_a_line_of_an_interrupted_run_is_skipped(tmp_path):
    Journal(tmp_path / "j", KEY).record("segment", "host", seconds=1.0)
    with (tmp_path / "j").open("a") as file:
        file.write('{"kind": "candidate", "na')
    again = Journal(tmp_path / "j", KEY)
    again.record("segment", "cpu-bf16", seconds=1.0)
    assert {name for name in ("host", "cpu-bf16") if Journal(tmp_path / "j", KEY).find("segment", name)} == {
        "host", "cpu-bf16",
    }  # fmt: skip


def test_something_else_in_its_place_is_an_error_with_the_way_out(tmp_path):
    (tmp_path / "j").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DovetailError, match="is no journal") as error:
        Journal(tmp_path / "j", KEY)
    assert "--journal" in error.value.hint


HOST = {"name": "host", "backends": ["host"], "high": [], "pins": [], "margin": 0.0, "threads": 0}
RECORDED = {
    "candidate": {
        "candidate": HOST, "status": "prepared", "why": "", "snr_db": "inf", "answers": 0.5, "missed": ["m"],
        "bytes": 7, "coverage": "all", "engines": ["e"], "against": [1.0, 0.9, 1.1, 6], "digest": "d",
        "compile_seconds": 0.1, "run_seconds": 0.1,
    },
    "race": {
        "leader": "host", "turns": {"host": [1e-3]}, "failed": {"other": "why"}, "heats": [{"host": [1e-3]}],
        "memory": {"host": 9},
    },
    "noise": {"noise": [0.5]},
    "pairs": {"pairs": [[0, 1, 1, 1, [0.5]]]},
    "segment": {"seconds": 1e-3},
}  # fmt: skip
JUNK = [None, True, -1, 1.5, 1e999, float("nan"), 10**40, "", "x", [], {}, [None], {"x": None}, [[]]]


def edits(value, place=()):
    """Every place in plain data, and what it may be edited to: something else, or gone."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*place, name)
        yield from edits(one, (*place, name))


def edited(entry, place, junk):
    entry = copy.deepcopy(entry)
    holder = entry
    for name in place[:-1]:
        holder = holder[name]
    if junk == "gone":
        del holder[place[-1]]
    else:
        holder[place[-1]] = junk
    return entry


@pytest.mark.parametrize("kind", RECORDED)
def test_an_edited_entry_is_read_or_an_error_that_names_its_line(kind, tmp_path):
    Journal(tmp_path / "j", KEY).record(kind, "host", **RECORDED[kind])
    head, line = [text for text in (tmp_path / "j").read_text().splitlines() if text]
    entry = json.loads(line)
    assert Journal(tmp_path / "j", KEY).find(kind, "host") == entry
    refused = 0
    for place in edits(entry):
        for junk in ["gone", *JUNK]:
            (tmp_path / "j").write_text(f"{head}\n{json.dumps(edited(entry, place, junk))}\n")
            try:
                Journal(tmp_path / "j", KEY)
            except DovetailError as error:
                assert error.message.startswith(f"{tmp_path / 'j'}:2: ") and "remove the line" in error.hint
                refused += 1
    assert refused > 5 * len(list(edits(entry)))


@pytest.mark.parametrize("key", [None, [], {"model": 3}, {"model": None}, "x", 5])
def test_an_edited_key_is_an_error_that_names_its_line(key, tmp_path):
    (tmp_path / "j").write_text("\n" + json.dumps({"key": key}) + "\n")
    with pytest.raises(DovetailError, match=r"j:2: key: expected|j:2: key: model: expected a text"):
        Journal(tmp_path / "j", KEY)


@pytest.mark.parametrize("line", ["[" * 100_000, "9" * 10_000, "\x00", '{"kind": "other", "name": "x"}', "null"])
def test_a_line_that_is_no_entry_of_a_tuning_is_skipped(line, tmp_path):
    Journal(tmp_path / "j", KEY).record("segment", "host", seconds=1.0)
    with (tmp_path / "j").open("a") as file:
        file.write(line)
    if "other" in line:
        with pytest.raises(DovetailError, match="j:4: kind: expected 'candidate' or"):
            Journal(tmp_path / "j", KEY)
    else:
        assert len(Journal(tmp_path / "j", KEY)) == 1
