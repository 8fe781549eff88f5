"""YAML as a tree with lines: the words of YAML 1.2, keys that stay text, sources that are no paths."""

import zipfile

import pytest
from dovetail_schemas import SchemaError, load_backend
from dovetail_schemas.yaml_source import parse_tree


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True), ("False", False), ("12", 12), ("-3", -3), ("0x10", 16), ("0o17", 15), ("017", 17), ("1.5", 1.5),
        ("1e3", 1000.0), ("~", None), ("null", None), ("", None), ("nearest", "nearest"), ("1..7", "1..7"),
        ("12:30", "12:30"), ("2001-01-01", "2001-01-01"), ('"10"', "10"), ("'on'", "on"), ("1_000", "1_000"),
    ],
)  # fmt: skip
def test_a_plain_value_follows_yaml_1_2(written, value):
    assert parse_tree(f"a: {written}", "x.yaml").plain() == {"a": value}


def test_keys_stay_text():
    tree = parse_tree("ON: 1\nyes: 2\n3: 4\ntrue: 5", "x.yaml")
    assert list(tree.plain()) == ["ON", "yes", "3", "true"]


@pytest.mark.parametrize("word", ["yes", "No", "ON", "off"])
def test_words_that_tools_read_differently_are_refused_as_values(word):
    with pytest.raises(SchemaError, match=f"x.yaml:2: '{word}' is true or false to some tools"):
        parse_tree(f"a:\n  - {word}", "x.yaml")


def test_every_node_knows_its_line():
    tree = parse_tree("a:\n  - 1\n  - b: 2\n", "x.yaml")
    first, second = tree.get("a").items
    assert (first.where, second.get("b").where) == ("x.yaml:2", "x.yaml:3")


def test_a_source_inside_a_package(tmp_path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as package:
        package.writestr("p/backends/z.yaml", "backend: z\ndevice: cpu\nopset: 22\npolicies: mine\nops: {Exp: {}}\n")
        package.writestr("p/backends/mine.yaml", "policy: {fp32: [Exp]}")
    source = zipfile.Path(tmp_path / "p.zip") / "p" / "backends" / "z.yaml"
    backend = load_backend(source, find=lambda kind, name: source.parent / f"{name}.yaml")
    assert (backend.name, backend.policy("", "Exp"), backend.rule("", "Exp").source) == ("z", "fp32", "z.yaml:5")
