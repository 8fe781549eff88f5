"""`dovetail check`: check backend and operator files, and judge real models against a backend file."""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api_extensions import api_extension
from dovetail.cli import PlainCommand, columns, existing, option_keywords, plugins_of, print_json, say
from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import Source
from dovetail.text import pluralize
from dovetail_onnx.frontend import fixing_option, open_inputs, shape_text

from dovetail_schemas.errors import near_miss
from dovetail_schemas.options import parse_options, variant_applies
from dovetail_schemas.yaml_source import Entries, Items, Node, drops, load_document, load_tree

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.plugin import Backend, PluginSet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE")
    parser.add_argument(
        "--installed", metavar="NAME", help="instead of a file: a backend or distribution that is installed, as a whole"
    )
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL")
    parser.add_argument(
        "--option", action="append", default=[], type=_option, metavar="key=value", help="an option of the backend"
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="with --installed: report what was found until then"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="with --installed: keep what passes there, and try it again only with other versions",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="with --installed: check on a machine of a dask.distributed scheduler that has the engines",
    )
    parser.add_argument(
        "--data", type=Path, metavar="FILE|FOLDER", help="inputs of the models, for options that look at data"
    )


def seconds(text: str) -> float:
    """Convert the argument of a time limit; anything but a positive number is a command-line error."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write a number of seconds above 0")
    return found


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    plugins = plugins_of(args)
    registry = plugins.registry
    if args.installed is not None:
        return _check_installed(args)
    if args.time_limit is not None:
        raise UsageError("--time-limit is for --installed", "leave it out: files are checked in seconds")
    if args.cluster is not None:
        raise UsageError("--cluster is for --installed", "leave it out: files are checked here")
    if args.resume is not None:
        raise UsageError("--resume is for --installed", "leave it out: files are checked in seconds")
    if args.file is None:
        raise UsageError(
            "no file is named", "write: dovetail check FILE [MODEL ...], or dovetail check --installed NAME"
        )
    existing(args.file)
    if _holds_operators(args.file):
        return _check_operators(args)
    from dovetail.compiler import OptionPhases
    from dovetail.passes import Request
    from dovetail.plugin.loading import format_of, load_backend_file, open_file

    from dovetail_schemas.backend import FileBackend
    from dovetail_schemas.integer_nodes import integers_by_accident

    chosen = OptionPhases(registry, option_keywords(args), "check")
    asked = Request(data=existing(args.data))
    backend = load_backend_file(registry, args.file, dict(args.option))
    known = {
        "engine": list(registry.engine),
        "emitter": list(registry.emitter),
        "strategy": list(registry.strategy),
        "partitioner": list(registry.partitioner),
        "fusion": list(registry.edit),
    }

    def load(options: Mapping[str, str]) -> Backend:
        from dovetail_schemas.type_specs import resolve_observer

        loaded = load_backend_file(registry, args.file, options)
        for spec in loaded.types.values() if isinstance(loaded, FileBackend) else ():
            if spec.observer.name:
                resolve_observer(spec.observer, registry.observer)
        return loaded

    format_of(registry, args.file).check(args.file, known, load)
    facts = {name: registry.fact[name] for name in backend.facts}
    documents: list[dict[str, Any]] = []
    for path in args.models:
        existing(path)
        model = open_file(path, plugins)
        _normalize(model, backend, plugins, chosen.requested(asked, model))
        judge = backend.judge(model.ir.opset_imports, facts)
        operators, lost = _judge(model, judge)
        notes_on = {"open_extents": _open_extents(model, lost), "integers": _integer_nodes(model, judge)}
        documents.append({"model": str(path), "operators": operators, **notes_on})
    notes = [text] if isinstance(backend, FileBackend) and (text := integers_by_accident(backend)) else []
    if args.json:
        print_json({"file": str(args.file), "valid": True, "notes": notes, "models": documents})
        return 0
    for document in documents:
        print("\n".join([document["model"], *_lines(document["operators"])]))
        for key in ("open_extents", "integers"):
            if document[key]:
                print(f"    note: {document[key]}")
    for text in notes if not any(document["integers"] for document in documents) else ():
        print(f"note: {text}")
    print(f"{args.file}: valid")
    return 0


def _holds_operators(file: Path) -> bool:
    """Check whether a file defines operators; an unreadable file is left to the reader of backend files."""
    try:
        tree = load_document(file)
    except DovetailError:
        return False
    return isinstance(tree, Items) or isinstance(tree, Entries) and tree.get("operators") is not None


def _check_installed(args: argparse.Namespace) -> int:
    """Check an installed backend, with the distribution that makes and runs models for it.

    Raises:
        UsageError: A file is named, too, or nothing of that name is installed.
        DovetailError: The distribution that checks is not installed.
    """
    if args.file is not None:
        raise UsageError(
            f"{args.file} and --installed {args.installed} are two things to check", "leave one of them out"
        )
    testing = api_extension("testing")

    def report(found: Any) -> None:
        if args.json:
            print_json(found.as_dict())
        else:
            say(*found.lines())

    if args.cluster is not None:
        if args.resume is not None:
            raise UsageError("--resume is of this machine, and --cluster checks on another", "leave one of them out")
        sent = testing.check_on_worker(args.installed, args.cluster, plugins_of(args), args.time_limit)
        report(sent)
        return 1 if sent.problems else 0
    with testing.progress_lines() as progress:
        found = testing.check_installed(
            args.installed, plugins_of(args), progress, time_limit=args.time_limit, resume=args.resume,
            interrupted=report,
        )  # fmt: skip
    report(found)
    return 1 if found.problems else 0


def _check_operators(args: argparse.Namespace) -> int:
    """Check an operator file, with the distribution that reads such files.

    Raises:
        DovetailError: It is not installed, or the file is invalid.
    """
    operators = api_extension("check_operators")(args.file)
    if args.json:
        print_json({"file": str(args.file), "valid": True, "operators": operators})
        return 0
    rows = [("operator", "signature", "executed by")]
    rows += [(each["name"], each["signature"], each["executed"]) for each in operators]
    print("\n".join(columns(rows, indent="    ")))
    print(f"{args.file}: valid")
    return 0


def _normalize(model: Model, backend: Backend, plugins: PluginSet, request: Request) -> None:
    """Normalize the model as a compilation does before judging: values typed, constants folded."""
    from dovetail.passes import Context, compose

    context = Context(request, plugins=plugins)
    context.backends = (backend,)
    compose(plugins.registry, stages=("normalize",), request=request, plugins=plugins).run(model, context)


def _judge(model: Model, judge: Any) -> tuple[list[dict[str, Any]], int]:
    """Count per operator the nodes that are accepted, rejected, or pending on the region, and each reason.

    Also count the nodes rejected only because of open extents.
    """
    counts: dict[str, Counter] = {}
    reasons: dict[str, Counter] = {}
    lost = 0
    for node in model.nodes():
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        verdict = judge(node)
        answer = {True: "accepted", False: "refused", None: "open"}[verdict.ok]
        counts.setdefault(name, Counter())[answer] += 1
        if verdict.ok is False:
            lost += bool(verdict.reasons) and all(reason.open for reason in verdict.reasons)
            texts = (f"{reason.text} [{reason.source}]" if reason.source else reason.text for reason in verdict.reasons)
            reasons.setdefault(name, Counter()).update(texts)
    table = [
        {
            "operator": name,
            **{answer: counts[name][answer] for answer in ("accepted", "refused", "open")},
            "reasons": dict(reasons.get(name, Counter()).most_common()),
        }
        for name in sorted(counts)
    ]
    return table, lost


def _integer_nodes(model: Model, judge: Any) -> str:
    """Describe the accepted nodes that compute in integers which their rules do not list; empty if there are none."""
    from dovetail_schemas.integer_nodes import accepted_by_accident
    from dovetail_schemas.legality import RuleJudge

    if not isinstance(judge, RuleJudge):
        return ""
    accepted = (node for node in model.nodes() if judge(node).ok is not False)
    return accepted_by_accident(Counter(node.op_type for node in accepted if judge.takes_by_accident(node)))


def _open_extents(model: Model, lost: int) -> str:
    """Describe the cost of the model's open extents, and the option that fixes them; empty if there is none."""
    inputs = open_inputs(model)
    if not lost or not inputs:
        return ""
    names = ", ".join(f"'{value.name}' ({shape_text(value)})" for value in inputs)
    nodes = f"{pluralize(lost, 'node')} {'is' if lost == 1 else 'are'}"
    return f"the model leaves extents of {names} open, and {nodes} refused for that alone: {fixing_option(inputs)[0]}"


def _lines(operators: list[dict[str, Any]]) -> list[str]:
    """Format a table; nodes that depend on their region are listed as open."""
    rows: list[tuple] = [("operator", "accepted", "refused", "open", "reasons")]
    for item in operators:
        reasons = [f"{count} x {reason}" for reason, count in item["reasons"].items()] or [""]
        rows.append((item["operator"], item["accepted"], item["refused"], item["open"], reasons[0]))
        rows += [("", "", "", "", reason) for reason in reasons[1:]]
    return columns(rows, indent="    ")


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    return key, value


CHECK = PlainCommand(add_arguments, run)


_MOST_COMBINATIONS = 64
_NAMED = {
    "strategy": ("place", "strategy"),
    "partitioner": ("place", "regions"),
    "engine": ("emit", "engines"),
    "emitter": ("emit", "artifacts"),
    "fusion": ("prepare", ""),
}


def lint_backend(
    source: Source, known: Mapping[str, Collection[str]], load: Callable[[Mapping[str, str]], object]
) -> None:
    """Check the parts of a file that loading it with default options does not reach.

    Names of engines, emitters, strategies, partitioners and fusions must be registered, the opset must exist, and every
    variant must load.

    Args:
        source: The file.
        known: Registered names by kind: `engine`, `emitter`, `strategy`, `partitioner`, `fusion`.
        load: Loads the file with given option values.

    Raises:
        SchemaError: The first error found, with file and line.
    """
    tree = load_tree(source)
    for layer in (tree, *_variants(tree)):
        for kind, (section, key) in _NAMED.items():
            _check_names(layer, section, key, kind, known[kind])
        _check_opset(layer)
    declared = parse_options(tree.get("options"))
    for options in _combinations(declared):
        load(options)
    for variant in _variants(tree):
        for options in itertools.islice(_reaching(variant, declared), 1):
            load(options)


def _variants(tree: Entries) -> Iterator[Entries]:
    node = tree.get("variants")
    for item in node.many() if node is not None else ():
        yield item.entries("variants")


def _check_names(layer: Entries, section: str, key: str, kind: str, known: Collection[str]) -> None:
    held = layer.get(section)
    if held is None or drops(held):
        return
    node = held.entries(section).get(key) if key else held
    for word in node.words(key) if node is not None and not drops(node) else ():
        if word.raw not in known:
            installed = f"; installed: {', '.join(sorted(known))}"
            raise word.error(f"unknown {kind} '{word.raw}'{near_miss(word.raw, known) or installed}")


def _check_opset(layer: Entries) -> None:
    import onnx

    node: Node | None = layer.get("opset")
    newest = onnx.defs.onnx_opset_version()
    if node is None:
        return
    for part in node.text("opset").split(".."):
        if part.isdecimal() and not 1 <= int(part) <= newest:
            raise node.error(f"opset {part} does not exist; onnx {onnx.__version__} knows 1 to {newest}")


def _reaching(variant: Entries, declared: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Yield values of the options that a variant names, with which it applies."""
    when = variant.require("when")
    named = [key.raw for key, _ in when.entries("when")]
    if not declared.keys() >= set(named):
        return  # options of the file that it extends
    first = {name: values[0] for name, values in declared.items()}
    for values in itertools.product(*(declared[name] for name in named)):
        options = dict(zip(named, values))
        if variant_applies(when, declared, {**first, **options}):
            yield options


def _combinations(declared: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Yield all combinations of option values or, if these are too many, all values of each option."""
    sizes = 1
    for values in declared.values():
        sizes *= len(values)
    if sizes <= _MOST_COMBINATIONS:
        for chosen in itertools.product(*declared.values()):
            yield dict(zip(declared, chosen))
        return
    for name, values in declared.items():
        for value in values:
            yield {name: value}
