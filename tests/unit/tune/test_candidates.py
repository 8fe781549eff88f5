"""Which requests compete: backends that run here, their options, and everything high."""

import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import Availability, Engine, Reads, load_plugins
from dovetail_tune.candidates import candidates_of, combinations_of, needs_of

REGISTRY = load_plugins().registry
ORT = "cpu-int8:runtime=onnxruntime"


def names(*args, **options):
    return [candidate.name for candidate in candidates_of(REGISTRY, *args, **options).found]


def test_a_backend_competes_with_its_defaults_with_everything_high_and_with_every_option():
    assert names(["cpu-bf16"]) == ["host", "cpu-bf16", "cpu-bf16 high", "cpu-bf16:policies=lean"]


def test_defaults_of_all_backends_come_first_because_a_budget_may_end_anywhere():
    found = names(["cpu-bf16", "cpu-int8"])
    assert found[:4] == ["host", "cpu-bf16", "cpu-bf16 high", "cpu-int8"]
    assert found[-2:] == ["cpu-int8 high", "cpu-int8:policies=lean"]
    assert all(":" in name for name in found[4:-2])


@pytest.mark.parametrize(
    ("backends", "defaults"),
    [
        (["cpu-int8", "cpu-bf16"], ["cpu-bf16", "cpu-bf16 high", "cpu-int8"]),
        (["cpu-int8:weights=int8"], ["cpu-int8:weights=int8"]),
        (["host"], []),
    ],
)
def test_defaults_and_what_is_named_are_tried_and_raised_before_other_options(backends, defaults):
    found = candidates_of(REGISTRY, backends, threads=(1, 2))
    both = ["host @2", *(f"{name} @{threads}" for name in defaults for threads in (1, 2))]
    assert [candidate.name for candidate in found.defaults] == both
    assert (found.found[0], *found.defaults, *found.others) == found.found


@pytest.mark.slow
def test_the_fastest_option_is_tried_with_every_other_one():
    found = candidates_of(REGISTRY, ["cpu-bf16", "cpu-int8"], threads=(0, 1))
    by_name = {one.name: one for one in found.found}
    both = combinations_of(REGISTRY, by_name["cpu-int8:runtime=onnxruntime @1"], found.others)
    names = [one.name for one in both]
    assert "cpu-int8:runtime=onnxruntime,weight_range=reduced @1" in names and len(names) == len(set(names)) > 5
    assert all(one.threads == 1 and one.backends == (one.name.removesuffix(" @1"),) for one in both)
    assert not any("runtime=openvino" in name or "bf16" in name for name in names)
    for alone in ("cpu-int8", "cpu-bf16 high", "host"):
        assert combinations_of(REGISTRY, by_name[alone], found.others) == []


def test_options_about_the_device_are_not_tried(with_backend):
    """`any` stands for the chip that is here; a context for another one does not even load."""
    file = """backend: chips
device: npu
opset: 13..22
precision: {low: float16, high: float32}
options: {chip: [any, one, two], way: [short, long]}
types: {f: [float16, float32]}
ops: {Conv: {types: f}}
place: {strategy: autocast}
emit: {engines: [chips-engine]}
"""
    plugins = with_backend(file)
    plugins.registry.engine("chips-engine", f"{__name__}:Here")
    found = candidates_of(plugins.registry, ["chips"])
    assert [one.name for one in found.found] == ["host", "chips", "chips high", "chips:way=long"]


INTERACTING = """backend: chips
device: npu
opset: 13..22
precision: {low: float16, high: float32}
options: {way: [short, long], near: ["0", "1", "2"], unused: [a, b], far: ["0", "1"], later: ["0", "1"]}
interacting: [[way, near], [way, unused]]
variants:
  - {when: {far: "1", unused: b}, summary: both}
types: {f: [float16, float32]}
ops: {Conv: {types: f}}
place: {strategy: autocast}
emit: {engines: [chips-engine]}
"""


def test_options_that_interact_are_tried_together_once_each_was_alone(with_backend):
    """But for those that have no effect by the other choices."""
    plugins = with_backend(INTERACTING)
    plugins.registry.engine("chips-engine", f"{__name__}:Here")
    found = candidates_of(plugins.registry, ["chips"]).others
    alone, together = ["way=long", "near=1", "near=2"], ["way=long,near=1", "way=long,near=2"]
    assert [one.name for one in found] == [f"chips:{options}" for options in (*alone, *together, "later=1")]
    both = next(one for one in found if one.name == "chips:way=long,near=1")
    assert both.why == "the backend with another way and another near"


def test_both_runtimes_are_tried_with_both_ranges_of_weights_before_other_options():
    found = candidates_of(REGISTRY, ["cpu-int8"])
    both = [ORT, "cpu-int8:weight_range=reduced", f"{ORT},weight_range=reduced"]
    assert [one.name for one in found.others][:3] == both


class Here(Engine):
    name = "chips-engine"
    reads = Reads(22, 10, frozenset({"float32"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        raise NotImplementedError


def test_a_backend_with_options_competes_with_these_only():
    assert names(["cpu-bf16:policies=lean"]) == ["host", "cpu-bf16:policies=lean", "cpu-bf16:policies=lean high"]


def test_every_thread_count_is_a_candidate():
    assert names(["cpu-bf16:policies=lean"], threads=(1, 2))[:3] == ["host @1", "host @2", "cpu-bf16:policies=lean @1"]
    assert candidates_of(REGISTRY, threads=(1,)).found[0].threads == 1


def test_without_names_all_that_run_here_compete_and_the_others_have_a_reason():
    found = candidates_of(REGISTRY)
    assert "cpu-bf16" in [candidate.name for candidate in found.found]
    # ONNX Runtime computes its integers here, which says nothing about the speed of a BPU.
    assert found.absent["bpu-int8"] == "no engine here runs on the device 'bpu'"


def test_a_backend_that_is_named_and_does_not_run_here_is_an_error():
    with pytest.raises(DovetailError, match="backend 'bpu-int8' cannot run here: no engine here runs on the device"):
        candidates_of(REGISTRY, ["bpu-int8"])
    with pytest.raises(DovetailError, match="cpu-bf17"):
        candidates_of(REGISTRY, ["cpu-bf17"])


def test_backends_compete_whose_engines_the_workers_have():
    (first, *_) = needs_of(REGISTRY, ["tensorrt", "host"])["tensorrt"]
    found = candidates_of(REGISTRY, ["tensorrt"], offers={first: ""})
    assert "tensorrt" in [candidate.name for candidate in found.found]
    with pytest.raises(DovetailError, match="'cpu-bf16' cannot run on the workers: .*: no device"):
        candidates_of(REGISTRY, ["cpu-bf16"], offers={first: "", "openvino-cpu": "no device"})
    assert "cpu-bf16" in candidates_of(REGISTRY, offers={first: ""}).absent


def test_requests_are_raised_twice_at_most_and_keep_their_threads():
    candidate = candidates_of(REGISTRY, ["cpu-int8"], (2,)).found[1]
    raised = candidate.raised()
    assert (raised.name, raised.threads, raised.margin) == ("cpu-int8 raised @2", 2, 2.0)
    further = raised.raised()
    assert (further.name, further.threads, further.margin) == ("cpu-int8 raised further @2", 2, 4.0)
    assert further.raised() is None


def test_thread_counts_are_not_negative():
    with pytest.raises(UsageError, match="--threads -1"):
        candidates_of(REGISTRY, threads=(-1,))
