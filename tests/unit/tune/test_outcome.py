"""The table, the winner's line, and the plot."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from dovetail_tune.candidates import Candidate, CandidateSet
from dovetail_tune.outcome import Tuned, TunedCandidate, combined, slower_integers, vague_times
from dovetail_tune.plot import front_svg
from dovetail_tune.statistics_of_pairs import ratio_of

HOST = TunedCandidate(
    Candidate("host", ("host",)), 2e-3, None, math.inf, 1.0, 4_000_000, 50_000_000, ("onnxruntime-cpu",), "", True, 0.02
)
LOW = TunedCandidate(
    Candidate("cpu-int8", ("cpu-int8",)), 1e-3, ratio_of([1.0] * 9, [2.0] * 9), 31.4, 0.99, 1_000_000, 9_000_000,
    ("openvino-cpu-int8",), "the fastest within the goal", True, 0.02,
)  # fmt: skip
NOISY = TunedCandidate(
    Candidate("cpu-bf16 <raised>", ("cpu-bf16",)), 3e-3, None, 12.0, remark="'y' has SNR 12.0 dB, ..."
)
CRASHED = TunedCandidate(
    Candidate("crashing-npu", ("crashing-npu",)), remark="left out: its process ended with signal SIGSEGV"
)
TUNED = Tuned(
    "net.onnx", [LOW, HOST, NOISY, CRASHED], LOW, certificate="within 4 % of ...", front=[(0.4, 29.0), (1.0, math.inf)]
)


def test_a_row_says_time_accuracy_answers_size_and_memory():
    row = TUNED.rows()[0]
    assert row["candidate"] == "cpu-int8" and row["ms"] == "1" and row["of host"] == "0.500 +-0%"
    assert (row["SNR dB"], row["answers"], row["MB"], row["memory MB"]) == ("31.4", "99.00%", "1", "9")
    assert TUNED.rows()[1]["SNR dB"] == "exact"


def test_milliseconds_that_are_not_known_well_are_not_told():
    """The median of a few turns, or of turns on a busy machine, may be many times what a run takes."""
    few, noisy = replace(LOW, spread=math.inf), replace(LOW, spread=0.4)
    assert few.row()["ms"] == noisy.row()["ms"] == "" and noisy.row()["of host"] == "0.500 +-0%"
    assert (few.as_dict()["seconds_spread"], noisy.as_dict()["seconds_spread"]) == (None, 0.4)
    why = "a spread above 25 %, or too few turns for one"
    assert vague_times([HOST, noisy, CRASHED]) == [f"no milliseconds are told of cpu-int8: {why}"]
    assert vague_times([HOST, LOW, CRASHED]) == []


def test_columns_that_nobody_fills_are_left_out():
    assert list(Tuned("net", [CRASHED]).rows()[0]) == ["candidate", "remark"]


def test_the_lines_name_the_winner_its_speed_and_the_certificate():
    assert TUNED.lines() == [
        "fastest within the goal: cpu-int8, 2.00 times as fast as the host alone",
        "within 4 % of ...",
    ]
    assert Tuned("net").lines() == ["no candidate meets the goals"]


def test_a_goal_on_too_few_samples_is_not_called_met():
    why = "measured on too few: 1 row of 4 can judge, 3 must, and 5 independent rows give as many"
    assert Tuned("net", [LOW, HOST], LOW, too_few=why).lines() == [
        "fastest of those that do not miss the goal: cpu-int8, 2.00 times as fast as the host alone",
        f"the goal is not called met: {why}",
    ]


def test_a_folder_of_models_has_one_row_each():
    rows = combined({"net.onnx": TUNED, "other.onnx": "no data for it"})
    assert [(row["model"], row["candidate"], row["remark"]) for row in rows] == [
        ("net.onnx", "cpu-int8", "the fastest within the goal"), ("other.onnx", "", "no data for it"),
    ]  # fmt: skip


def test_the_plot_is_well_formed_and_has_a_point_per_candidate_and_the_front():
    svg = ET.fromstring(front_svg(TUNED))
    space = "{http://www.w3.org/2000/svg}"
    assert svg.find(f"{space}title").text == "net.onnx: time and accuracy"
    points = svg.findall(f"{space}g")
    assert [point.find(f"{space}text").text for point in points] == ["cpu-int8", "host", "cpu-bf16 <raised>"]
    fills = [point.find(f"{space}circle").get("fill") for point in points]
    assert fills[2] == "white" and "white" not in fills[:2]  # hollow: it misses the goal
    assert len(svg.find(f"{space}polyline").get("points").split()) == 2


def test_a_plot_of_nothing_is_a_document_too():
    assert ET.fromstring(front_svg(Tuned("net"))).tag.endswith("svg")


def timed(candidate, seconds, meets=True, spread=0.02):
    return TunedCandidate(candidate, seconds, meets=meets, spread=spread)


@pytest.mark.parametrize(
    ("integers", "floats", "said"),
    [
        (0.9, 1.0, []),
        (1.5, 1.0, ["integers are not faster here: int takes 1.50 of the time of float, which computes in floats"]),
        (1.0, 1.0, ["integers are not faster here: int takes 1.00 of the time of float, which computes in floats"]),
        (None, 1.0, []),
    ],
)
def test_integers_that_are_not_faster_are_said_to_be_so(integers, floats, said):
    whole, part = Candidate("int", ("cpu-int8:weights=int8",)), Candidate("float", ("cpu-bf16",))
    high = Candidate("int high", ("cpu-int8",), high=("*",))  # in floats
    entries = [timed(whole, integers), timed(part, floats), timed(high, 2.0)]
    assert slower_integers(entries, CandidateSet((whole, part, high), {}, 3, frozenset({"cpu-int8"}))) == said


def test_times_that_are_not_known_well_compare_nothing():
    whole, part = Candidate("int", ("cpu-int8",)), Candidate("float", ("cpu-bf16",))
    competing = CandidateSet((whole, part), {}, 2, frozenset({"cpu-int8"}))
    assert slower_integers([timed(whole, 1.5, spread=math.inf), timed(part, 1.0)], competing) == []
    assert len(slower_integers([timed(whole, 1.5), timed(part, 1.0)], competing)) == 1


def test_integers_that_win_are_not_said_to_be_slower():
    """Faster floats that miss the goal are no reason to do without integers."""
    whole, part = Candidate("int", ("cpu-int8",)), Candidate("float", ("cpu-bf16",))
    competing = CandidateSet((whole, part), {}, 2, frozenset({"cpu-int8"}))
    winner = timed(whole, 1.14)
    assert slower_integers([winner, timed(part, 1.0, meets=False)], competing, winner) == []
    assert slower_integers([winner, timed(part, 1.13)], competing, winner) == []
