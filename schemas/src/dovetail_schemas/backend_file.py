"""Loading a backend file with its bases and variants, and checking all of it with file and line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dovetail.plugin import Border, FindFile, Source

from dovetail_schemas.backend import FileBackend
from dovetail_schemas.entries import RuleEntry, collect_entries, parse_unlisted
from dovetail_schemas.errors import near_miss
from dovetail_schemas.file_search import find_file, is_file, require_file
from dovetail_schemas.layers import merge_layers
from dovetail_schemas.options import (
    choose_options,
    idle_options,
    parse_interacting,
    parse_options,
    unused_options,
    variant_applies,
)
from dovetail_schemas.policy_file import Policies, load_policies, split_operator
from dovetail_schemas.region_rules import REGION_KEYS, parse_region
from dovetail_schemas.rules import UNLISTED, Rule, RuleContext, compile_rule
from dovetail_schemas.type_specs import DTYPES, TypeSpec, parse_dtype, parse_type
from dovetail_schemas.yaml_source import Entries, Node, Scalar, drops, load_tree

_Layer = tuple[Source, Entries]
"""A file, or a part of it, with the file relative to which its names are resolved."""

VARIANT_KEYS = (
    "summary", "device", "precision", "opset", "dynamic", "integers", "open_extents", "facts", "types", "groups",
    "unlisted", "ops", "prepare", "runtimes", "interacting", "region", "border", "refine", "accuracy", "place", "emit",
    "policies",
)  # fmt: skip
FILE_KEYS = ("backend", "extends", "options", "variants", *VARIANT_KEYS)
_PLACE = ("strategy", "regions")
_PRECISION = ("low", "high", "accumulate", "widened")
_REFINE = ("equalize", "smooth", "rounding", "bias", "scales", "feedback", "none")
_DECIBELS = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)(?: ?dB)?")
_OPSET = re.compile(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?")


def load_backend(
    source: Source,
    find: FindFile | None = None,
    options: Mapping[str, str] | None = None,
    facts: frozenset[str] = frozenset(),
) -> FileBackend:
    """Load a backend file and all files that it refers to.

    Args:
        source: The file: a path, or a resource inside a package.
        find: Looks up the files that it names; by default they are searched in its folder.
        options: Chosen values of its options; the default is an option's first value.
        facts: Names of the facts that its limits may use.

    Raises:
        SchemaError: A file is invalid, or an option does not exist.
    """
    files = _chain(source, find, ())
    declared: dict[str, tuple[str, ...]] = {}
    for _, tree in files:
        declared.update(parse_options(tree.get("options")))
    chosen = choose_options(declared, options or {}, files[-1][1])
    layers: list[_Layer] = []
    read = [file for file, _ in files]
    for file, tree in files:
        layers += [(file, tree), *_variants(file, tree, declared, chosen, read)]
    return _build(files[-1], layers, find, facts, declared, chosen, read)


def _chain(source: Source, find: FindFile | None, seen: tuple[Source, ...]) -> list[_Layer]:
    """Return the file and its bases, the outermost base first."""
    tree = load_tree(source).only("backend file", FILE_KEYS)
    tree.require("backend").text("backend")
    extends = tree.get("extends")
    if extends is None:
        return [(source, tree)]
    base = require_file(find, source, "backend", extends, "extends")
    chain = (*seen, source)
    if str(base) in map(str, chain):
        raise extends.error(f"extends goes in a circle: {' -> '.join(file.name for file in (*chain, base))}")
    return [*_chain(base, find, chain), (source, tree)]


def _variants(
    source: Source,
    tree: Entries,
    declared: Mapping[str, tuple[str, ...]],
    chosen: Mapping[str, str],
    read: list[Source],
) -> list[_Layer]:
    """Return the variants that apply, in order; variants in separate files are loaded, and appended to `read`."""
    node = tree.get("variants")
    if node is None:
        return []
    found = []
    for item in node.many():
        entries = item.entries("variants").only("variant", ("when", "file", *VARIANT_KEYS))
        if not variant_applies(entries.require("when"), declared, chosen):
            continue
        file = entries.get("file")
        if file is not None:
            parent = getattr(source, "parent", None)
            if parent is None:
                raise file.error(f"'{file.text('file')}' cannot be found beside {source.name}")
            beside = parent.joinpath(file.text("file"))
            if not is_file(beside):
                raise file.error(f"no file '{file.text('file')}' is found beside {source.name}")
            read.append(beside)
            found.append((source, load_tree(read[-1]).only("variant", VARIANT_KEYS)))
        found.append((source, entries))
    return found


def _build(
    file: _Layer,
    layers: list[_Layer],
    find: FindFile | None,
    facts: frozenset[str],
    declared: Mapping[str, tuple[str, ...]],
    chosen: Mapping[str, str],
    read: list[Source],
) -> FileBackend:
    source, tree = file
    trees = [layer for _, layer in layers]
    top = merge_layers(trees)
    precision = _section(top, "precision", _PRECISION)
    place = _section(top, "place", None)
    emit = _section(top, "emit", ("engines", "artifacts", "arithmetic"))
    border = _section(top, "border", ("in", "out", "floats"))
    open_extents = _section(top, "open_extents", ("cost", "facts"))
    types = _types(top)
    rules, unlisted = _rules(top, trees, RuleContext(types, facts))
    policies = _policies(layers, find, read)
    used = {name for rule in (*rules.values(), unlisted) for row in rule.rows for name in row.names}
    strategy, partitioner = place.get("strategy"), place.get("regions")
    own = [(key, value) for key, value in place if key.raw not in _PLACE]
    return FileBackend(
        name=tree.require("backend").text("backend"),
        summary=node.text("summary") if (node := top.get("summary")) else "",
        device=top.require("device").text("device"),
        **{key: parse_dtype(node, key) if (node := precision.get(key)) else None for key in _PRECISION[:3]},
        widened=_widened(precision),
        opset=_opset(top.require("opset")),
        dynamic=top.choice("dynamic", ("refuse", "accept", "profile")),
        dynamic_source=node.where if (node := top.get("dynamic")) else "",
        integers=top.choice("integers", ("refuse", "accept")),
        integers_source=node.where if (node := top.get("integers")) else "",
        open_cost=node.text("cost") if (node := open_extents.get("cost")) else "",
        open_facts=_open_facts(open_extents, facts),
        given_facts=_given_facts(top, facts),
        options=dict(declared),
        chosen=dict(chosen),
        idle_options=idle_options(trees),
        unused_options=unused_options(trees, declared, chosen),
        types=types,
        region=parse_region(_section(top, "region", REGION_KEYS)),
        border=Border(
            border.choice("in", ("inside", "outside"), "outside"),
            border.choice("out", ("inside", "outside"), "outside"),
            border.choice("floats", ("low", "high"), "low"),
        ),
        refine=_refine(top.get("refine")),
        floor=_floor(_section(top, "accuracy", ("floor",)).get("floor")),
        strategy=strategy.text("strategy") if strategy else "",
        regions=partitioner.text("regions") if partitioner else "",
        prepare=_prepare(top.get("prepare")),
        runtimes=_runtimes(top, declared),
        interacting=parse_interacting(top.get("interacting"), declared),
        place={key.raw: value.plain() for key, value in own},
        place_sources={key.raw: key.where for key, _ in own},
        engines=_words(emit, "engines"),
        artifacts=_words(emit, "artifacts"),
        arithmetic=emit.choice("arithmetic", ("floats", "integers"), "floats"),
        source=source.name,
        files=tuple(read),
        _rules=rules,
        _unlisted=unlisted,
        _policies=policies,
        _facts=frozenset(used & facts),
    )


def _section(top: Entries, key: str, allowed: tuple[str, ...] | None) -> Entries:
    node = top.get(key)
    entries = node.entries(key) if node else Entries(top.file, top.line, ())
    return entries.only(key, allowed) if allowed else entries


def _words(entries: Entries, key: str) -> tuple[str, ...]:
    node = entries.get(key)
    return tuple(word.raw for word in node.words(key)) if node else ()


def _widened(precision: Entries) -> tuple[str, ...]:
    node = precision.get("widened")
    return tuple(parse_dtype(word, "widened") for word in node.words("widened")) if node else ()


def _open_facts(open_extents: Entries, facts: frozenset[str]) -> frozenset[str]:
    node = open_extents.get("facts")
    words = node.words("facts") if node else []
    for word in words:
        if word.raw not in facts:
            raise word.error(f"facts: no plugin registers the fact '{word.raw}'{near_miss(word.raw, facts)}")
    return frozenset(word.raw for word in words)


def _given_facts(top: Entries, facts: frozenset[str]) -> dict[str, object]:
    """Parse the values of facts that hold for every node."""
    found: dict[str, object] = {}
    for key, node in _section(top, "facts", None):
        if key.raw not in facts:
            raise key.error(f"facts: no plugin registers the fact '{key.raw}'{near_miss(key.raw, facts)}")
        if not isinstance(node, Scalar):
            raise node.error(f"facts: '{key.raw}' needs one word or number")
        found[key.raw] = node.plain()
    return found


def _types(top: Entries) -> dict[str, TypeSpec]:
    found = {}
    for key, node in _section(top, "types", None):
        if key.raw in DTYPES:
            raise key.error(f"'{key.raw}' is a dtype already; give the type another name")
        found[key.raw] = parse_type(key.raw, node)
    return found


def _opset(node: Node) -> tuple[int, int]:
    text = node.text("opset")
    match = _OPSET.fullmatch(text)
    if not match or int(match[1]) > int(match[2] or match[1]):
        raise node.error(f"opset: '{text}' is no version and no range of two versions (10..11)")
    return int(match[1]), int(match[2] or match[1])


def _refine(node: Node | None) -> tuple[str, ...]:
    words = node.words("refine") if node else []
    for word in words:
        if word.raw not in _REFINE:
            near = near_miss(word.raw, _REFINE)
            raise word.error(f"refine: unknown refinement '{word.raw}'{near}; there are {', '.join(_REFINE)}")
        if word.raw == "none" and len(words) > 1:
            raise word.error("refine: 'none' excludes all others")
    return tuple(word.raw for word in words if word.raw != "none")


def _floor(node: Node | None) -> tuple[float, str] | None:
    """Parse the accuracy floor in decibels: `25`, or `25 dB`."""
    if node is None:
        return None
    text = node.text("floor")
    match = _DECIBELS.fullmatch(text)
    if not match:
        raise node.error(f"floor: '{text}' is no number of decibels from 0, such as 25 dB")
    return float(match[1]), node.where


def _prepare(node: Node | None) -> dict[str, str]:
    """Parse the names of fusions, with file and line of each; which there are is known where they are made."""
    found: dict[str, str] = {}
    for word in node.words("prepare") if node else ():
        if word.raw in found:
            raise word.error(f"prepare: '{word.raw}' is given twice")
        found[word.raw] = word.where
    return found


def _runtimes(top: Entries, declared: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """Parse the options that suit programs which load results."""
    found: dict[str, dict[str, str]] = {}
    for program, node in _section(top, "runtimes", None):
        wanted = {key.raw: value.text(key.raw) for key, value in node.entries("runtimes")}
        choose_options(declared, wanted, node.entries("runtimes"))
        found[program.raw] = wanted
    return found


def _policies(layers: list[_Layer], find: FindFile | None, read: list[Source]) -> Policies:
    """Load the policies that the last layer names, searched in the folder of the file that names them."""

    def extended(beside: Source, name: str) -> Source | None:
        found = find_file(find, beside, "policy", name)
        read.extend([found] if found is not None else [])
        return found

    named = [(source, node) for source, layer in layers if (node := layer.get("policies"))]
    if not named or drops(named[-1][1]):
        return Policies({}, {})
    source, node = named[-1]
    file = require_file(find, source, "policy", node, "policies")
    read.append(file)
    return load_policies(file, extended)


def _rules(top: Entries, layers: list[Entries], context: RuleContext) -> tuple[dict[tuple[str, str], Rule], Rule]:
    """Compile the rule of every listed operator, and the rule of all others."""
    groups = {key.raw: value.words("groups") for key, value in _section(top, "groups", None)}
    for words in groups.values():
        for word in words:
            split_operator(word)
    node = top.get("unlisted")
    unlisted = parse_unlisted(node) if node else RuleEntry("refuse", {}, Scalar(top.file, top.line, ""), listed=False)
    entries: dict[tuple[str, str], RuleEntry] = {}
    for layer in layers:
        ops = layer.get("ops")
        for operator, entry in collect_entries(ops.entries("ops"), groups).items() if ops else ():
            below = entries.pop(operator, None)
            merged = below.under(entry) if below else entry
            if merged.status != "drop":
                entries[operator] = merged
            elif not merged.met:
                raise entry.place.error(f"there is no rule of '{operator[1]}' in ops below to drop")
    base = unlisted if unlisted.status == "ok" else unlisted._replace(status="ok", keys={})
    rules = {
        operator: compile_rule(operator, base.under(entry).settled(operator[1]), context)
        for operator, entry in entries.items()
    }
    return rules, compile_rule(UNLISTED, unlisted.settled("unlisted operators"), context)
