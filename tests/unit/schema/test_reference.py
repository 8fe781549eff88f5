"""The page on backend files is true: its tables are fresh, its examples load, its errors are what the reader says."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest
from dovetail.errors import DovetailError
from dovetail_schemas import RuleJudge
from dovetail_schemas.backend_yaml import BackendYaml
from dovetail_schemas.type_specs import DTYPES
from dovetail_schemas.yaml_source import Entries, Items, parse_tree

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs/backend_files.md").read_text(encoding="utf-8")
SCHEMAS = REPOSITORY / "schemas/src/dovetail_schemas"
HEAD = {"backend": "backend: x", "device": "device: cpu", "opset": "opset: 22"}
CONV = (
    "(float[1,8,32,32] X, float[16,8,3,3] W) => (float[1,16,15,15] y) { y = Conv<strides=[2,2], pads=[0,0,0,0]>(X, W) }"
)


def tool():
    spec = importlib.util.spec_from_file_location("reference", REPOSITORY / "schemas/tools/generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(mark):
    """The two columns of the table after a mark, without its heading."""
    table = PAGE.partition(f"<!-- {mark} -->\n")[2].partition("\n\n")[0].partition("\n<!--")[0]
    cells = [line.strip("|").split(" | ", 1) for line in table.splitlines()[2:]]
    return [(left.strip(), html.unescape(re.sub(r"\\(.)", r"\1", right.strip()))) for left, right in cells]


def code(cell):
    """The lines of a cell."""
    return re.findall(r"`([^`]*)`", cell)


def file_of(lines):
    """A file of these lines, below the head of every file."""
    head, rest = dict(HEAD), []
    for line in lines:
        key = line.partition(":")[0]
        if key in head:
            head[key] = line
        else:
            rest.append(line)
    return "\n".join([*head.values(), *rest, ""])


def find(kind, name):
    return SCHEMAS / f"policies/{name}.yaml" if kind == "policy" and name in ("fp16", "bf16") else None


def keys_of(tree):
    """Every key in a tree, however deep."""
    if isinstance(tree, Entries):
        for key, value in tree:
            yield key.raw
            yield from keys_of(value)
    elif isinstance(tree, Items):
        for item in tree.items:
            yield from keys_of(item)


def test_the_tables_are_fresh():
    schema = json.loads((SCHEMAS / "backend.schema.json").read_text())
    assert tool().rendered(PAGE, schema) == PAGE, "stale; run python schemas/tools/generate_reference.py"


def test_the_tables_hold_every_key():
    """A key is in its table; the keys of a variant are those of a file."""
    reference = tool().Reference(json.loads((SCHEMAS / "backend.schema.json").read_text()))
    for table in re.findall(r"<!-- table: (\w+) -->", PAGE):
        shown = set(re.findall(r"^\| `(\w+)` \|", reference.table(table), re.MULTILINE))
        if table == "variant":
            assert shown == {"when", "file"}
        else:
            assert shown == set(reference.properties(table))


def test_the_page_lists_the_element_types():
    listed = PAGE.partition("The element types are ")[2].partition(".\n")[0]
    assert re.split(r",\s+|\s+and\s+", listed) == list(DTYPES)


@pytest.mark.parametrize(("mark", "text"), re.findall(r"<!-- load: (.*?) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_load(mark, text, tmp_path):
    name, _, option = mark.partition(", ")
    (tmp_path / name).write_text(text)
    backend = BackendYaml().load(tmp_path / name, find, dict([option.split("=")]) if option else {}, ())
    assert backend.takes("", "Conv")
    if option:
        (block,) = backend.rule("", "Conv").rows[0].blocks
        assert (list(map(str, block.limits)), backend.policy("", "Conv")) == (["KH: 1..15"], "lower")


@pytest.mark.parametrize(("cell", "answer"), rows("limits"))
def test_the_answers_of_limits(cell, answer, load, node):
    (limit,) = code(cell)
    shape = "shape: {X: N C H W, W: M Cg KH KW, strides: SH SW}"
    backend = load(f"ops:\n  Conv:\n    {shape}\n    limits:\n      {limit}\n")
    verdict = RuleJudge(backend)(node(CONV))
    assert ([reason.text for reason in verdict.reasons] or ["holds"]) == [answer]
    assert verdict.ok == (answer == "holds")


@pytest.mark.parametrize(("cell", "message"), rows("errors"))
def test_the_errors(cell, message, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(file_of(code(cell)))
    with pytest.raises(DovetailError) as caught:
        BackendYaml().load(path, find, {}, frozenset())
    assert caught.value.message == message


def test_every_key_has_an_error():
    """Each key of the reference stands in a text of the table of errors, so that a wrong value of it was tried."""
    tried = set()
    for cell, _ in rows("errors"):
        for line in code(cell):
            if (
                "&" not in line
                and "!" not in line
                and "<<" not in line
                and ": on}" not in line
                and "Conv, Conv" not in line
            ):
                tried |= set(keys_of(parse_tree(line, "x")))
    reference = tool().Reference(json.loads((SCHEMAS / "backend.schema.json").read_text()))
    tables = [*re.findall(r"<!-- table: (\w+) -->", PAGE), "border"]
    keys = {key for table in tables if table != "variant" for key in reference.properties(table)}
    assert keys | {"when", "file"} <= tried
