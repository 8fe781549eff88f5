"""The journal: entries of one request on one machine, resumed after an interruption."""

import pytest
from dovetail.errors import DovetailError
from dovetail_tune.journal import Journal

KEY = {"model": "m", "data": "d", "goals": "--min-snr 30", "processor": "p", "versions": "v"}


def test_a_run_that_is_resumed_finds_what_was_tried(tmp_path):
    Journal(tmp_path / "j", KEY).record("candidate", "host", status="prepared")
    again = Journal(tmp_path / "j", KEY)
    assert again.find("candidate", "host") == {"kind": "candidate", "name": "host", "status": "prepared"}
    assert again.find("candidate", "cpu-bf16") is None and again.others == ""


def test_the_last_entry_counts(tmp_path):
    journal = Journal(tmp_path / "j", KEY)
    journal.record("candidate", "host", status="failed")
    journal.record("candidate", "host", status="prepared")
    assert Journal(tmp_path / "j", KEY).find("candidate", "host")["status"] == "prepared"


@pytest.mark.parametrize(
    ("changed", "text"),
    [("processor", "another processor"), ("versions", "other versions of what computes"), ("model", "another model")],
)
def test_figures_of_something_else_are_not_used_and_the_difference_is_named(tmp_path, changed, text):
    Journal(tmp_path / "j", KEY).record("candidate", "host")
    other = Journal(tmp_path / "j", {**KEY, changed: "x"})
    assert other.find("candidate", "host") is None and other.others == text
    other.record("candidate", "host", new=True)
    assert Journal(tmp_path / "j", KEY).find("candidate", "host") is not None  # both are kept


def test_half_a_line_of_an_interrupted_run_is_skipped(tmp_path):
    Journal(tmp_path / "j", KEY).record("candidate", "host")
    with (tmp_path / "j").open("a") as file:
        file.write('{"kind": "candidate", "na')
    again = Journal(tmp_path / "j", KEY)
    again.record("candidate", "cpu-bf16")
    assert {name for name in ("host", "cpu-bf16") if Journal(tmp_path / "j", KEY).find("candidate", name)} == {
        "host", "cpu-bf16",
    }  # fmt: skip


def test_something_else_in_its_place_is_an_error_with_the_way_out(tmp_path):
    (tmp_path / "j").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DovetailError, match="is no journal") as error:
        Journal(tmp_path / "j", KEY)
    assert "--journal" in error.value.hint
