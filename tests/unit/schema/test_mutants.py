"""A backend file with random faults is read, or refused with file and line.

The JSON schema refuses nothing that is read. It knows the form of a file; the reader also knows names, terms and
ranges: what only the reader refuses stands in `ONLY_THE_READER` with the reason. A sample of the mutants runs by
default, all 2,000 with DOVETAIL_SLOW=1.
"""

import json
import os
import re

import pytest
from dovetail_schemas import SchemaError, load_backend, peek_backend
from dovetail_schemas.check_command import lint_backend
from dovetail_schemas.yaml_source import load_tree, parse_tree

from .mutants import mutant, written

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

FACTS = frozenset({
    "channel_multiplier", "dynamic_extents", "dynamic_graph", "extent", "foreign_activations", "indices_of_last_axis",
    "nested_bodies", "padded_channels", "padded_pointwise", "reserved_rows", "residual_add", "resizes_channels",
    "rounds", "trip_outputs", "strided_to_one_column", "trips", "wide_integers", "zeros",
})  # fmt: skip
ONLY_THE_READER = {
    "names stand elsewhere: in onnx, in other parts of the file, or in other files": (
        r"unknown (operator|group|type|option|value|name|fusion) '|has no (port|attribute) '"
        r"|^no (backend|policy) file '|^no file '.*' is found beside|is a dtype already"
    ),
    "terms, ranges and shapes are languages of their own": (
        r"is no range|^not a term|neither a number nor a range|only integers, names|one dot at most|' is empty: "
        r"|'\.\.' has no end|^whole lists|is no extent in|stands first or not at all|cannot be computed"
        r"|^unknown function|^longer than|arguments: |^(min|max|prod|len|align) takes"
    ),
    "one part contradicts another": (
        r"is given twice|rows hold their own|goes in a circle|are no versions|is no version|of more than 300 digits"
    ),
}


@pytest.fixture(scope="module")
def validator(repository):
    schema = repository / "schemas/src/dovetail_schemas/backend.schema.json"
    return jsonschema.Draft7Validator(json.loads(schema.read_text()))


@pytest.fixture(scope="module")
def sound(repository, shipped):
    """Sound files: those that are shipped, that of a vendor, and drafts that use every key."""
    files = (
        *shipped,
        *repository.glob("tests/example_vendor/src/*/*.backend.yaml"),
        *repository.glob("tests/unit/schema/data/*.yaml"),
    )
    trees = [(path, load_tree(path)) for path in sorted(files)]
    whole = [(path, tree) for path, tree in trees if tree.get("backend")]  # the others are laid over one
    assert len(whole) == 14
    return whole


NAMED = {
    "engine": ("emit", "engines"),
    "emitter": ("emit", "artifacts"),
    "strategy": ("place", "strategy"),
    "partitioner": ("place", "regions"),
}


@pytest.fixture(scope="module")
def read(repository):
    """Read a file with all its variants; the error, or an empty text."""
    package, data = repository / "schemas/src/dovetail_schemas", repository / "tests/unit/schema/data"

    def find(kind, name):
        own = repository.glob(f"backends/*/src/*/{'policies/' * (kind == 'policy')}{name.replace('-', '_')}.yaml")
        shared = (package / "policies" if kind == "policy" else data) / f"{name.replace('-', '_')}.yaml"
        return next((file for file in (shared, *own) if file.is_file()), None)

    def read_file(path):
        tree = load_tree(path)
        parts = [tree, *getattr(tree.get("variants"), "items", ())]
        names = {kind: {word.raw for part in parts for word in _words(part, *where)} for kind, where in NAMED.items()}
        names["fusion"] = {"fuse-gelu"}
        peek_backend(path)
        load_backend(path, find, {}, FACTS)
        lint_backend(path, names, lambda options: load_backend(path, find, options, FACTS))

    return read_file


def _words(tree, section, key):
    if not hasattr(tree, "get"):
        return []
    node = {name.raw: value for name, value in getattr(tree.get(section), "pairs", ())}.get(key)
    return [word for word in getattr(node, "items", (node,)) if hasattr(word, "raw")]


def test_a_sound_file_is_written_as_it_was_read(sound):
    """The faults of a mutant are those that were put there."""
    for path, tree in sound:
        assert parse_tree(written(tree), path.name).plain() == tree.plain()


SLOW = os.environ.get("DOVETAIL_SLOW") == "1"
SEEDS = [range(start, start + 100) for start in range(0, 2000, 100)] if SLOW else [range(0, 2000, 48)]


@pytest.mark.parametrize("numbers", SEEDS, ids=str)
def test_mutants(numbers, sound, validator, read, tmp_path):
    path, outcomes = tmp_path / "mutant.yaml", set()
    for seed in numbers:
        origin, tree = sound[seed % len(sound)]
        text = mutant(tree, seed)
        path.write_text(text, encoding="utf-8")
        where = f"seed {seed} of {origin.name}"
        try:
            read(path)
            problem = ""
        except SchemaError as error:
            assert re.match(r"\w+\.yaml:\d+: \S", str(error)), f"{where}: {error}"
            problem = error.problem
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
        try:
            plain = parse_tree(text, path.name).plain()
        except SchemaError:
            outcomes.add("no YAML")
            continue
        wrong = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:80]}" for e in validator.iter_errors(plain)]
        if not problem:
            assert not wrong, f"{where} is read, and the schema refuses it: {wrong}"
        elif not wrong:
            known = any(re.search(pattern, problem) for pattern in ONLY_THE_READER.values())
            assert known, f"{where} fits the schema, and is refused: {problem}"
        outcomes.add("refused" if problem else "read")
    assert outcomes == {"no YAML", "refused", "read"}
