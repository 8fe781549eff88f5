"""Other environments that engines run in: `--engine-env`, and the variables that it sets for this process.

An engine whose package excludes one that is installed here, such as a build of ONNX Runtime for another device, runs in
a process of a virtual environment that has it. The variable `DOVETAIL_<NAME>_ENV` names the environment of one engine,
`DOVETAIL_ENGINE_ENV` that of all whose package is not installed here.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.cli import ENGINES, option_group
from dovetail.plugin import Option

_ALL = "ENGINE"


def variable_of(name: str) -> str:
    """Return the variable for an engine's short name, such as `DOVETAIL_NV_TENSORRT_RTX_ENV`."""
    return f"DOVETAIL_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}_ENV"


def environment_of(name: str, installed: bool) -> str:
    """Return the environment in which an engine is to run; empty for this process.

    Args:
        name: Its short name.
        installed: Whether its package is installed here, so that the variable for all others does not apply.
    """
    own = os.environ.get(variable_of(name), "")
    return own or ("" if installed else os.environ.get(variable_of(_ALL), ""))


class _SetEnvironment(argparse.Action):
    """Sets the variable, for engines that this process loads."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        name, equals, place = str(values).partition("=")
        place = place if equals else name
        if not Path(place).exists():
            parser.error(f"{option_string}: there is no environment {place} (python -m venv {place} makes one)")
        os.environ[variable_of(name if equals else _ALL)] = str(Path(place).absolute())


def add_engine_env(parser: argparse.ArgumentParser) -> None:
    """Add `--engine-env` to the parser of a command that loads engines."""
    option_group(parser, ENGINES).add_argument(
        "--engine-env",
        action=_SetEnvironment,
        metavar="[NAME=]PATH",
        help="virtual environment that has an engine's package: webgpu=/opt/webgpu",
    )


class EngineEnvironment(Option):
    """The option `--engine-env` of commands that compile. It says where engines are, and is no part of the plan."""

    commands = ("compile", "plan", "bisect")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the argument."""
        add_engine_env(parser)


ENGINE_ENV = EngineEnvironment()
