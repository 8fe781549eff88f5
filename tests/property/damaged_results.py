"""Saved results, damaged in one or two places, as a bad disk, a careless copy or an attacker would.

A damage is made from a seed alone. Half of those that change text write digests anew, so that the change is not refused
at the door but reaches what reads the file.
"""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import dovetail
import numpy as np
import onnx

from .mutant_bases import text

MODEL = "m.onnx"
OUTSIDE = "outside"
HOSTILE = (
    "../outside/precious", "artifacts/../../outside/precious", "/etc/hostname", "..\\outside", "model.onnx",
    "result.json", "\x1b[31mred", "9" * 5000, "1e999", "-1", "NaN", "null", "true", "[" * 3000, '{"a":' * 3000, "''",
    "*a", "!!python/name:os.system", "\0", "ü", "x" * 300, "[]", "{}", "99999999999999999999",
)  # fmt: skip
TEXTS = (".json", ".yaml")


def pictures():
    """A model with convolutions for integers and a matrix product for floats."""
    return text(
        """g (float[4,3,8,8] x) => (float[4,8] y) {
             [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w, b)  [relu] r = Relu (c)
             [second] d = Conv <pads = [1, 1, 1, 1]> (r, v)  [act] s = Relu (d)
             [pool] p = GlobalAveragePool (s)  [flat] f = Flatten <axis = 1> (p)
             [mul] m = MatMul (f, u)  [soft] y = Softmax (m) }""",
        weights=[("w", (8, 3, 3, 3)), ("b", (8,)), ("v", (8, 8, 3, 3)), ("u", (8, 8))],
    )


RNG = np.random.default_rng(3)
SAMPLES = {"x": RNG.normal(0, 1, (4, 3, 8, 8)).astype(np.float32)}
REQUESTS = {
    "cpu-bf16": (["cpu-bf16"], {}, False),
    "external": (["cpu-bf16"], {}, True),
    "gpu-fp16": (["gpu-fp16"], {}, False),
    "ppl-int8": (["ppl-int8", "cpu-bf16"], {"data": SAMPLES}, False),
    "bpu-int8": (["bpu-int8"], {"data": SAMPLES}, False),
}


def make(folder):
    """One folder per request below `folder`: the model, the result `out`, a plan in both forms, and what is outside."""
    for name, (backends, request, external) in REQUESTS.items():
        place = folder / name
        (place / OUTSIDE / "folder").mkdir(parents=True)
        for file in ("precious", "model.onnx", "ppl.json", "folder/precious"):
            (place / OUTSIDE / file).write_text("precious")
        onnx.save(pictures(), place / MODEL)
        compiled = dovetail.compile(place / MODEL, backends, try_engines=False, **request)
        compiled.save(place / "out", external=external)
        compiled.plan.save(place / "plans" / "plan.yaml")
        compiled.plan.save(place / "plans" / "plan.json")


def files_below(folder):
    """Every file below a folder, links as they are, sorted."""
    return sorted(path for path in Path(folder).rglob("*") if path.is_symlink() or not path.is_dir())


def state(folder):
    """What can be seen of a folder: kinds, contents and links, apart from the result and what it was asked to write."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] in ("out", "plans"):
            continue
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "other"
    return found


def damage(place, rng):
    """Damage the result and the plans in `place` in one or two places; returns what was done."""
    return [_damage_once(place, rng) for _ in range(rng.choice((1, 1, 2)))]


def _damage_once(place, rng):
    out = place / "out"
    path = rng.choice(files_below(out) + (files_below(place / "plans") if rng.random() < 0.3 else []))
    what = rng.choice(("truncate", "flip", "swap", "link", "rename", "delete", "folder", "pipe", "text", "text", "add"))
    name = str(path.relative_to(place))
    if path.is_symlink() or not path.is_file():
        return f"{name} is no file any more"
    if what == "text":
        return _damage_text(path, out, rng) if path.suffix in TEXTS else _flip(path, rng)
    if what == "truncate":
        content = path.read_bytes()
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif what == "flip":
        _flip(path, rng)
    elif what == "swap":
        other = rng.choice(files_below(place))
        if other.is_file() and not other.is_symlink():
            content = other.read_bytes()
            if other.is_relative_to(out):
                other.write_bytes(path.read_bytes())
            path.write_bytes(content)
        return f"swap {name} with {other.relative_to(place)}"
    elif what == "link":
        return _link(place, path, rng)
    elif what == "rename":
        _rename(path, rng.choice(("renamed", "model.onnx", "a.npz", "\\evil", ".hidden")))
    elif what == "delete":
        path.unlink()
    elif what == "folder":
        path.unlink()
        path.mkdir()
        (path / "inner").write_text("inner")
    elif what == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif what == "add":
        added = path.parent / rng.choice((".DS_Store", "artifacts", "refined-0.npz", "plan.json", "Thumbs.db"))
        if not added.exists() and not added.is_symlink():
            added.symlink_to(place / OUTSIDE / "folder") if rng.random() < 0.5 else added.write_text("added")
        return f"add {added.relative_to(place)}"
    return f"{what} {name}"


def _flip(path, rng):
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 8))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"flip {path.name}"


def _link(place, path, rng):
    folders = [folder for folder in path.parents if folder.is_relative_to(place / "out") and folder != place / "out"]
    victim = rng.choice([path, *folders])
    target = rng.choice(("precious", "folder", "missing", "self"))
    if victim.is_dir():
        shutil.rmtree(victim)
    else:
        victim.unlink()
    victim.symlink_to(victim if target == "self" else place / OUTSIDE / target)
    return f"link {victim.relative_to(place)} to {target}"


def _damage_text(path, out, rng):
    lines = path.read_text(errors="replace").split("\n")
    at, kind = rng.randrange(len(lines)), rng.randrange(4)
    if kind == 0:
        words = lines[at].split('"')
        words[rng.randrange(len(words))] = rng.choice(HOSTILE)
        lines[at] = '"'.join(words)
    elif kind == 1:
        key, colon, _ = lines[at].rpartition(":")
        lines[at] = f"{key}{colon} {rng.choice(HOSTILE)}"
    elif kind == 2:
        del lines[at]
    else:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    sealed = path.is_relative_to(out) and path.name != "result.json" and rng.random() < 0.6
    if sealed:
        _content_digest(path, out)
    return f"text {path.name} line {at + 1} kind {kind}{', sealed' if sealed else ''}"


def _content_digest(path, out):
    """Write what was changed into the manifest, and into the plan that refers to its remarks."""
    if path.name == "remarks.json" and (plan := out / "plan.yaml").is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines = plan.read_text(errors="replace").split("\n")
        kept = [line for line in lines if not line.startswith("remarks:")]
        plan.write_text("\n".join([*kept, f"remarks: {json.dumps({'file': path.name, 'sha256': digest})}", ""]))
        _content_digest(plan, out)
    if not (out / "result.json").is_file():
        return
    try:
        manifest = json.loads((out / "result.json").read_text())
        content = path.read_bytes()
        record = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest["files"][str(path.relative_to(out))] = record
        (out / "result.json").write_text(json.dumps(manifest, indent=1))
    except (OSError, ValueError, KeyError, TypeError):
        return


def rng_of(seed):
    """The numbers of one trial."""
    return random.Random(seed)


def _rename(path, name):
    target = path.with_name(name)
    path.rename(path.with_name(f"{name}_too") if target.is_dir() else target)
