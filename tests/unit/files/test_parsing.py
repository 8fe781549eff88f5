"""JSON and YAML that would crash or stall their parsers are errors with a line."""

import pytest
from dovetail_onnx.files.parsing import DEEPEST, Malformed, parse_json, yaml_events

DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[" * DEEP, 1, "nested too deeply"),
        ("{}\n" + "[" * DEEP + "]" * DEEP, 2, "nested too deeply"),
        ('{"a":' * DEEP, 1, "nested too deeply"),
        ("9" * 5000, 0, "a number of more than 300 digits"),
        ('{\n"a": }', 2, "Expecting value"),
        (b'{\n"\xff": 1}', 2, "not text in UTF-8"),
    ],
)
def test_json(text, line, problem):
    with pytest.raises(Malformed) as caught:
        parse_json(text)
    assert (caught.value.line, caught.value.problem[: len(problem)]) == (line, problem)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_only_python_knows(text):
    """A size of `Infinity` fails where it becomes an integer; plans may say that a range is open."""
    parse_json(text)
    with pytest.raises(Malformed):
        parse_json(text, finite=True)


def test_brackets_and_digits_in_texts_do_not_count():
    """A node may have any name."""
    name = '[{"\\' * DEEP + "9" * 5000
    import json

    assert parse_json(json.dumps({name: [[]] * 2 * DEEPEST})) == {name: [[]] * 2 * DEEPEST}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a:\n  " + "[" * DEEP, 2, "nested too deeply"),
        ("a:\n  " + "{a: " * DEEP, 2, "nested too deeply"),
        ("- " * DEEP, 1, "nested too deeply"),
        ("a: 1\nb: ]", 2, "not YAML"),
        ("a: \x07", 1, "not a text file"),
        ("x:\n - 0x" + "f" * 5000, 2, "a number of more than 300 digits"),
        ("x: 1" + ":1" * 5000, 1, "a number of more than 300 digits"),
    ],
)
def test_yaml(text, line, problem):
    with pytest.raises(Malformed) as caught:
        list(yaml_events(text, numbers=True))
    assert (caught.value.line, caught.value.problem[: len(problem)]) == (line, problem)
