"""Mutants of backend files: one or two random faults, by seed."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from dovetail_schemas.yaml_source import Entries, Items, Node, Scalar

__all__ = ["mutant", "written"]

ODD = (
    "", "null", "~", "true", "0", "-1", "1.5", "1e999", "..", "1..", "7..1", "1-7", "=", "=x", "pow2", "x", "X.rank",
    "region.last", "1/0..", "9**9**9", "Conv", "$g", "a::b", "float16", "[", "on", "é", "N C H W", "... ...",
    "0x10", "99999999999999999999", "(((", "a.b.c", "if", "lambda: 0", "²", "1..²",
)  # fmt: skip


def written(node: Node, indent: int = 0) -> str:
    """The text of a tree in block style, which takes all plain words as they stand."""
    space = " " * indent
    if isinstance(node, Scalar):
        return f" {json.dumps(node.raw, ensure_ascii=False) if node.quoted else node.raw}\n"
    if isinstance(node, Items):
        parts = [f"{space}-{written(item, indent + 2)}" for item in node.items]
        return "\n" + "".join(parts) if parts else " []\n"
    parts = []
    for key, value in node:
        name = json.dumps(key.raw, ensure_ascii=False) if key.quoted else key.raw
        parts.append(f"{space}{name}:{written(value, indent + 2)}")
    return ("\n" if indent else "") + "".join(parts) if parts else " {}\n"


def mutant(tree: Entries, seed: int) -> str:
    """The text of a file with one to three faults.

    Args:
        tree: The sound file.
        seed: Decides the faults.
    """
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        tree = _changed(tree, chance)
    text = written(tree)
    if chance.random() < 0.1:  # a fault in the text itself
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(("", ":", "\n", "{", "]", "&a ", "!", "\t", "#", "'", "- ")) + text[at + 1 :]
    return text


def _changed(tree: Entries, chance: random.Random) -> Entries:
    """The tree with a fault somewhere; deep places are as likely as shallow ones."""
    found: list[tuple[int, ...]] = []
    _paths(tree, (), found)
    depth = chance.choice(sorted({len(path) for path in found}))
    path = chance.choice([path for path in found if len(path) == depth])
    pool = [_at(tree, chance.choice(found)) for _ in range(3)]
    return _replace(tree, path, chance, pool)


def _children(node: Node) -> list[Node]:
    return [value for _, value in node] if isinstance(node, Entries) else list(getattr(node, "items", ()))


def _paths(node: Node, path: tuple[int, ...], found: list[tuple[int, ...]]) -> None:
    for i, child in enumerate(_children(node)):
        found.append((*path, i))
        _paths(child, (*path, i), found)


def _at(node: Node, path: tuple[int, ...]) -> Node:
    for i in path:
        node = _children(node)[i]
    return node


def _replace(node: Node, path: tuple[int, ...], chance: random.Random, pool: list[Node]) -> Node:
    i, rest = path[0], path[1:]
    children = list(node.pairs) if isinstance(node, Entries) else list(node.items)
    if rest:
        if isinstance(node, Entries):
            children[i] = (children[i][0], _replace(children[i][1], rest, chance, pool))
        else:
            children[i] = _replace(children[i], rest, chance, pool)
    else:
        children = _fault(children, i, chance, pool)
    return replace(node, **{"pairs" if isinstance(node, Entries) else "items": tuple(children)})


def _fault(children: list, i: int, chance: random.Random, pool: list[Node]) -> list:
    """Delete, duplicate, retype, nest, rename or exchange the child at `i`."""
    child = children[i]
    keyed = isinstance(child, tuple)
    value = child[1] if keyed else child
    what = chance.choice(("delete", "duplicate", "retype", "retype", "nest", "rename", "exchange", "respell"))
    if what == "delete":
        return children[:i] + children[i + 1 :]
    if what == "duplicate":
        return [*children, child]
    if what == "rename" and keyed:
        return [*children[:i], (_respelled(child[0], chance), value), *children[i + 1 :]]
    if what == "retype":
        value = chance.choice((Scalar("", 0, chance.choice(ODD)), Items("", 0, ()), Entries("", 0, ()), _odd(chance)))
    elif what == "nest":
        value = Items("", 0, (value,)) if chance.random() < 0.5 else Entries("", 0, ((Scalar("", 0, "k"), value),))
    elif what == "exchange":
        value = chance.choice(pool)
    elif isinstance(value, Scalar):
        value = _respelled(value, chance)
    return [*children[:i], (child[0], value) if keyed else value, *children[i + 1 :]]


def _odd(chance: random.Random) -> Node:
    word = Scalar("", 0, chance.choice(ODD), True)
    return Items("", 0, (word, Scalar("", 0, "x"))) if chance.random() < 0.5 else Entries("", 0, ((word, word),))


def _respelled(word: Scalar, chance: random.Random) -> Scalar:
    if not word.raw:
        return word
    at = chance.randrange(len(word.raw))
    letter = chance.choice(("", "", "x", "1", "(", ".", "*", " "))
    return replace(word, raw=word.raw[:at] + letter + word.raw[at + 1 :] or "x")
