"""The command `dovetail new-backend`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli import PlainCommand, output, plugins_of, print_json, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `new-backend`."""
    parser.add_argument("name", metavar="NAME", help="name of the backend: small letters, digits and '-'")
    parser.add_argument("--int8", action="store_true", help="computes in int8, with scales from data")
    parser.add_argument("--engine", action="store_true", help="with an engine of its own, as a class to fill in")
    parser.add_argument(
        "--emitter",
        action="store_true",
        help="with an emitter that compiles regions by a tool in another process, and an engine for its programs",
    )
    parser.add_argument(
        "--quantizes", action="store_true", help="as --emitter --int8, with a tool that quantizes floats by itself"
    )
    parser.add_argument(
        "--from", dest="source", metavar="BACKEND", help="begin with the file of an installed backend, such as gpu-fp16"
    )
    parser.add_argument(
        "-o", "--output", type=output, metavar="FOLDER", help="the folder to write (default: dovetail-NAME)"
    )


def run(args: argparse.Namespace) -> int:
    """Run `new-backend`."""
    from dovetail_testing.kit.new_backend import new_backend

    folder = args.output or Path(f"dovetail-{args.name}")
    files = new_backend(
        args.name,
        folder,
        plugins_of(args),
        int8=args.int8,
        engine=args.engine,
        emitter=args.emitter,
        quantizes=args.quantizes,
        source=args.source or "",
    )
    if args.json:
        print_json({"folder": str(folder), "files": files})
        return 0
    say(f"{folder}:", *(f"    {name}" for name in files))
    say(
        "next:",
        f"    pip install '{'' if folder.is_absolute() else './'}{folder}[test]'",
        f"    dovetail check --installed {args.name}",
        f"    pytest {folder}",
    )
    return 0


NEW_BACKEND = PlainCommand(add_arguments, run)
