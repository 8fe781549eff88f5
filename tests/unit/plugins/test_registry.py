import sys

import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import Registry
from dovetail.plugin.loading.registry import KINDS


def test_kinds_are_complete():
    assert {table.kind for table in Registry().tables} == set(KINDS)


def test_things_are_imported_when_asked_for():
    registry = Registry("acme")
    sys.modules.pop("this", None)
    registry.pass_("zen", "this:d")
    registry.pass_("decode", "json:JSONDecoder.decode")
    assert "this" not in sys.modules
    assert list(registry.pass_) == ["decode", "zen"]
    assert registry.pass_.entries[0][:3] == ("decode", "json:JSONDecoder.decode", "acme")
    assert registry.pass_["decode"].__name__ == "decode"
    assert "zen" in registry.pass_
    assert len(registry.pass_) == 2


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("pass_", "module"),
        ("pass_", "module:"),
        ("pass_", "module:a b"),
        ("policy", "package:npu"),
        ("backend", "package:a b"),
        ("backend", "package"),
        ("backend", "package:../secret.yaml"),
        ("backend", "package:/etc/secret.yaml"),
    ],
)
def test_targets_have_one_of_two_forms(kind, target):
    with pytest.raises(DovetailError, match="is not of the form"):
        getattr(Registry(), kind)("name", target)


def test_names_are_words():
    with pytest.raises(DovetailError, match="may hold letters"):
        Registry().pass_("a b", "m:A")


def test_an_unknown_name_has_near_misses():
    registry = Registry()
    registry.backend("cpu-bf16", "p:x.yaml")
    with pytest.raises(DovetailError, match=r"unknown backend 'cpu-bf61' \(did you mean 'cpu-bf16'\?\)") as caught:
        registry.backend["cpu-bf61"]
    assert caught.value.hint == ("installed backends: cpu-bf16; another one comes with the distribution that brings it")
    with pytest.raises(DovetailError, match="unknown pass 'x'\n  installed: none"):
        registry.pass_.entry("x")


def test_what_does_not_load_names_its_owner():
    registry = Registry("acme")
    registry.engine("gone", "json:Gone")
    registry.backend("gone", "json:gone.yaml")
    for table in (registry.engine, registry.backend):
        with pytest.raises(DovetailError, match="'gone' of acme cannot be loaded from json:[gG]one"):
            table["gone"]


def test_a_kind_that_nothing_reads_is_an_error_that_names_the_known_ones():
    with pytest.raises(DovetailError, match=r"no kind 'stratagy' \(did you mean 'strategy'\?\); .* pass_, strategy,"):
        Registry().stratagy("mine", "acme:Mine")
    for gone in ("dialect", "shelf"):
        assert not hasattr(Registry(), gone)


@pytest.mark.parametrize("target", [None, 5, ["dead-code"], b"dead-code"])
def test_a_target_that_is_no_text_is_named(target):
    with pytest.raises(DovetailError, match="target .* of pipeline 'odd' is not of the form"):
        Registry().pipeline("odd", target)
