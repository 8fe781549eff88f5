"""The pages: their links lead somewhere, the words have the names that they give, and the architecture stays short."""

import contextlib
import importlib.util
import io
import re
import tomllib
from pathlib import Path

import pytest
from dovetail.cli.command_line import CommandLine
from dovetail.plugin import load_plugins

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*/*/README.md")),
]
WORDS = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
MEMBERS = ["core", "schemas", "plugins/*", "backends/*"]

OPTION = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")
PATH = re.compile(r"(?<![\w./{<*$:-])\w[\w.-]*(?:/[\w.-]+)*(?:\.py\b|/)(?![\w*<{-])|[\w.-]+/[\w./-]+\w")
# Their options are not ours. A page for people who know another tool names its options in a table.
OTHER_PROGRAMS = r"\./dovetail_run |pip |ruff |mkdocs |hb_mapper |polygraphy |trtexec |dask |--(minShapes|fp16|bf16)$"
MISSING = object()
FOLDERS = {"core", "schemas", "plugins", "backends", "tests", "docs", "bench", "examples", "tools", ".ci"}
FILES = [path for folder in sorted(FOLDERS) for path in (ROOT / folder).rglob("*")]


def code_of(page):
    """Everything in a code font: fenced blocks, indented ones and words between backticks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^\n|^    .*\n)(?: {4}.*\n)+", text, re.MULTILINE)
    return [*fenced, *indented, *re.findall(r"`([^`]+)`", text)]


def brought_by(page):
    """Files, commands, options and functions of the examples on a page, or of the distribution that it is about."""
    text = page.read_text(encoding="utf-8")
    found = set(re.findall(r"^<!-- file: (\S+) -->", text, re.MULTILINE))
    examples = [*page.parent.glob("src/*/*.py"), *page.parent.glob("tools/*.py")]
    examples += ROOT.glob("tests/example_tools/src/*/*.py") if page.parent.name == "kinds" else ()
    for source in (text, *(path.read_text(encoding="utf-8") for path in examples)):
        found |= set(re.findall(r"(?:registry\.command|add_argument)\(\"([\w-]+)\"", source))
    return found


def is_python_name(name):
    """Whether a dotted name leads to a module, or to something in it."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            if attribute in getattr(found, "__dataclass_fields__", ()):
                return True
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.fixture(scope="module")
def repository():
    """Every file and folder of the repository, by each end of its path: `a/b/c.py`, `b/c.py` and `c.py`."""
    ends = set()
    for path in FILES:
        parts = path.relative_to(ROOT).parts
        ends |= {"/".join(parts[at:]) for at in range(len(parts))}
    return ends | {name for name in FOLDERS if (ROOT / name).is_dir()}


@pytest.fixture(scope="module")
def installed_examples():
    """The packages of examples below `tests`, which pages on plugins name."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ROOT.glob("tests/*/src"):
            patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def quoted():
    """Dotted names that are text in code or projects: keys of metadata, files, functions that plugins add."""
    sources = [path for member in MEMBERS for path in ROOT.glob(f"{member}/src/**/*.py")]
    found = {name for path in sources for name in re.findall(r"[\"'](dovetail\.\w+)", path.read_text(encoding="utf-8"))}
    for path in ROOT.glob("tests/*/pyproject.toml"):
        points = tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        found |= {f"dovetail.{name}" for name in points.get("dovetail.api", ())}
    return found


@pytest.fixture(scope="module")
def options_of_commands():
    """The options of every installed command."""
    found = {}
    for name in load_plugins().registry.command:
        words = name.split(" ")
        parser = CommandLine(words).parser()
        with contextlib.redirect_stdout(io.StringIO()) as text, pytest.raises(SystemExit):
            parser.parse_args([*words, "--help"])
        if "--help-all" in text.getvalue():
            with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
                parser.parse_args([*words, "--help-all"])
        listed = re.findall(r"^  (-.*?)(?:  |$)", text.getvalue(), re.MULTILINE)
        found[name] = set(OPTION.findall(" ".join(listed)))
    return found


def anchors(page):
    """The anchors of the headings of a page, as renderers of Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        if not target.exists() or anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{link}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page, repository):
    """Python files, and paths that begin with a folder of the repository; each by the end of its path."""
    named = {name.rstrip("/") for text in code_of(page) for name in PATH.findall(text)}
    named = {name for name in named if name.endswith(".py") or name.partition("/")[0] in FOLDERS}
    missing = sorted(name for name in named - brought_by(page) if name not in repository)
    assert [name for name in missing if "acme" not in name] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_names_that_a_page_names_exist(page, installed_examples, quoted):
    code = "\n".join(code_of(page))
    named = set(re.findall(r"(?<![\w./\"-])(dovetail(?:_\w+)?(?:\.(?!cpp\b|h\b)\w+)+)(?![\w-]|::)", code))
    for module, names in re.findall(r"from (dovetail[\w.]*) import (\([^)]*\)|.*)", code):
        named |= {f"{module}.{name}" for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names))}
    missing = sorted(name for name in named - brought_by(page) - quoted if not is_python_name(name))
    assert [name for name in missing if "acme" not in name] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_a_page_names_exist(page, options_of_commands, pytestconfig):
    """Options after `dovetail COMMAND` or a script are theirs; others are those of any command, or of pytest."""
    own = brought_by(page)
    of_any = own.union(*options_of_commands.values())
    two_words = [name for name in options_of_commands if " " in name]
    wrong = []
    for line in (line for text in code_of(page) for line in text.replace("\\\n", " ").splitlines()):
        line = re.sub(r"'[^']*'|\"[^\"]*\"", " ", line)
        options = set(OPTION.findall(line))
        if re.match(OTHER_PROGRAMS, line.strip()):
            continue
        if command := re.search(rf"(?<![\w./-])dovetail ({'|'.join(two_words)}|[a-z][\w-]*)", line):
            allowed = options if command[1] in own else options_of_commands.get(command[1])
            wrong += [line] if allowed is None else sorted(options - own - allowed)
        elif script := re.search(r"[\w./]+\.py\b", line):
            texts = [path.read_text(encoding="utf-8") for path in FILES if path.as_posix().endswith(f"/{script[0]}")]
            wrong += [option for option in sorted(options) if not any(f'"{option}"' in text for text in texts)]
        else:
            wrong += [name for name in sorted(options - of_any) if pytestconfig.getoption(name, MISSING) is MISSING]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(dovetail[\w.]*\.\w+)(?:\(|`)", WORDS))))
def test_words_are_called_in_the_code_what_the_page_says(name):
    module, _, attribute = name.rpartition(".")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        pytest.fail(f"no module {module}")
    assert hasattr(found, attribute) or importlib.util.find_spec(name), name


def test_the_architecture_is_read_in_ten_minutes():
    assert len((ROOT / "docs/architecture.md").read_text(encoding="utf-8").split()) < 3000
