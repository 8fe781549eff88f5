"""The journal of a reduction, edited: it is read, or an error names the line."""

import copy
import json

import pytest
from dovetail.errors import DovetailError
from dovetail_verify.reducing.journal import NAME, ReductionJournal

IDENTITY = {"model": "m", "check": "c", "attempts": 1}
JUNK = [None, 1, -1, 1.5, "no", "", [], {}, [None], {"x": 1}]


@pytest.fixture
def lines(tmp_path):
    journal = ReductionJournal(tmp_path / "out", IDENTITY)
    journal.begin("nodes 0-3")
    journal.answer("nodes 0-3", True)
    journal.begin("nodes 1")
    journal.abandon("nodes 1")
    journal.close()
    return [line for line in (tmp_path / "out" / NAME).read_text().split("\n") if line]


def opened(tmp_path, lines):
    (tmp_path / "out" / NAME).write_text("\n".join(lines) + "\n")
    return ReductionJournal(tmp_path / "out", IDENTITY)


def test_it_is_read_again(tmp_path, lines):
    assert opened(tmp_path, lines).known("nodes 0-3") is True


def test_every_edit_of_an_entry_is_read_or_an_error_that_names_the_line(tmp_path, lines):
    refused = 0
    for at, line in enumerate(lines):
        for field in json.loads(line):
            for junk in ["gone", *JUNK]:
                entry = copy.deepcopy(json.loads(line))
                if junk == "gone":
                    del entry[field]
                else:
                    entry[field] = junk
                try:
                    opened(tmp_path, [*lines[:at], json.dumps(entry), *lines[at + 1 :]])
                except DovetailError as error:
                    place = f"{tmp_path / 'out' / NAME}" + (f":{at + 1}: " if at else " is the journal of another")
                    assert error.message.startswith(place) and error.hint
                    refused += 1
    assert refused > 50


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, "\x00", "null", '{"key": "nodes 0-3", "fa', "\ud800"])
def test_what_is_no_entry_is_skipped(text, tmp_path, lines):
    (tmp_path / "out" / NAME).write_bytes("\n".join([*lines, text]).encode("utf-8", "surrogatepass"))
    assert ReductionJournal(tmp_path / "out", IDENTITY).known("nodes 0-3") is True


def test_a_journal_that_cannot_be_read_is_an_error(tmp_path, lines):
    (tmp_path / "out" / NAME).unlink()
    (tmp_path / "out" / NAME).mkdir()
    with pytest.raises(DovetailError, match="holds files, and no journal"):
        ReductionJournal(tmp_path / "out", IDENTITY)
