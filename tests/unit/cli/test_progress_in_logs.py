"""Where neither a terminal nor a notebook shows a bar, a line says from time to time how far the work is."""

import threading

import dovetail
import pytest
from dovetail_commands import progress


@pytest.fixture
def lines(monkeypatch):
    """The lines so far, and an event for each."""
    found, written = [], threading.Event()

    def note(text):
        found.append(text)
        written.set()

    monkeypatch.setattr(progress, "note", note)
    return found, written


def test_a_step_that_lasts_is_said_again_and_again(lines, monkeypatch):
    found, written = lines
    monkeypatch.setattr(progress, "_LINES", 0.01)
    with dovetail.progress() as bar:
        bar("calibrate", 3, 40)
        for _ in range(2):
            assert written.wait(60)
            written.clear()
        bar("load\x1b[2J", 0, 0)
        while not found[-1].endswith("load\\x1b[2J"):
            assert written.wait(60)
            written.clear()
    assert found[0].endswith(" s  calibrate: 3 of 40")


def test_work_of_less_than_half_a_minute_says_nothing(lines):
    with dovetail.progress() as bar:
        bar("calibrate", 3, 40)
    assert not lines[0]
