"""The option of `bpu-int8`: what the vendor's files ask for, and --int16."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Request
    from dovetail.plugin import CompileJob, Proceed

__all__ = ["BPU", "BpuOption"]


class BpuOption:
    """The option: `dovetail compile --hb-yaml config.yaml`, and `dovetail.compile(model, hb_yaml="config.yaml")`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        hb_yaml: The YAML file of hb_mapper or hb_compile. It names the BPU, and on the command line the model; where
            the caller names no data, it names that, too.
        quant_config: The quant_config of hb_compile, in JSON.
        int16: A selector of nodes that shall be computed in int16, or several.
    """

    commands = ("compile", "plan")
    keywords = ("hb_yaml", "quant_config", "int16")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--hb-yaml`, `--quant-config` and `--int16`."""
        group = parser.add_argument_group("Horizon BPU")
        add = group.add_argument
        add("--hb-yaml", type=Path, metavar="config.yaml", help="do what the YAML file of hb_mapper or hb_compile says")
        add("--quant-config", type=Path, metavar="FILE", help="do what the quant_config of hb_compile says, in JSON")
        add(
            "--int16",
            action="append",
            default=[],
            metavar="SELECTOR",
            help="compute nodes in int16 on bpu-int8, where they and their neighbours can (repeatable)",
        )

    def complete(self, args: argparse.Namespace) -> None:
        """Set the model and the backend, where the command line names none and the YAML file does.

        Raises:
            DovetailError: The file cannot be read, or asks for what is not possible.
        """
        if getattr(args, "hb_yaml", None) is None:
            return
        from dovetail_bpu_int8.vendor.hb_yaml import read_hb_yaml
        from dovetail_bpu_int8.vendor.request import completed_backends, model_path

        asked = read_hb_yaml(args.hb_yaml)
        args.backend = completed_backends(args.backend, asked)
        if args.model is None:
            args.model = model_path(asked)

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """The keyword arguments."""
        return {"hb_yaml": args.hb_yaml, "quant_config": args.quant_config, "int16": tuple(args.int16)}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: what is asked for depends on the model, and `requested` records it."""
        return {}

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """The request with wishes, pins, options of the backend, refinements and data of the files.

        Raises:
            DovetailError: A file cannot be read, asks for what is not possible, or names what the model does not have.
        """
        given = {name: value for name, value in keywords.items() if value}
        if not given:
            return request
        from dovetail_bpu_int8.vendor.request import changed

        return changed(request, model, **given)

    def compile(self, job: CompileJob, proceed: Proceed) -> CompiledModel:
        """Compile; the strategy of the backend does what is asked."""
        return proceed()


BPU = BpuOption()
