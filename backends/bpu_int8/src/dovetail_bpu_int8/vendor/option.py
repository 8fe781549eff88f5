"""The option of `bpu-int8`: requests in the vendor's files, `--int16` and `--ladder`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import options_of
from dovetail.errors import DovetailError
from dovetail.passes import Pass
from dovetail.plugin import Option

from dovetail_bpu_int8.bpu_requests import BACKEND, OPTION, check_used, requests_of

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context, Request
    from dovetail.plugin import CompiledModel, CompileJob, NodeRequest, Phase, Policy


class BpuOption(Option):
    """The option: `dovetail compile --hb-yaml config.yaml`, and `dovetail.compile(model, hb_yaml="config.yaml")`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        hb_yaml: The YAML file of hb_mapper or hb_compile. It names the BPU, and on the command line the model; where
            the caller names no data, it names that, too.
        quant_config: The quant_config of hb_compile, in JSON.
        int16: A selector, or several, of nodes to compute in int16.
        ladder: More bits for as few nodes as possible until the cosine similarity of every output is that number, or
            0.99 (True); see `dovetail_bpu_int8.mixed_precision_search`.

    If no observer is chosen, the vendor's candidates are compared; see `dovetail_bpu_int8.calibration_search`.
    """

    commands = ("compile", "plan")
    keywords = ("hb_yaml", "quant_config", "int16", "ladder")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--hb-yaml`, `--quant-config`, `--int16` and `--ladder` to the parser."""
        add = options_of(parser, "bpu-int8").add_argument
        add("--hb-yaml", type=Path, metavar="config.yaml", help="do what the YAML file of hb_mapper or hb_compile says")
        add("--quant-config", type=Path, metavar="FILE", help="do what the quant_config of hb_compile says, in JSON")
        add(
            "--int16",
            action="append",
            default=[],
            metavar="SELECTOR",
            help="compute nodes in int16 on bpu-int8, where they and their neighbors can (repeatable)",
        )
        add(
            "--ladder",
            nargs="?",
            const="0.99",
            metavar="COSINE",
            help="more bits for as few nodes as possible, in the vendor's steps, until every output has this cosine "
            "similarity (0.99)",
        )

    def complete(self, args: argparse.Namespace) -> None:
        """Take model and backend from the YAML file if the command line does not name them.

        Raises:
            DovetailError: The file cannot be read, or requests something unsupported.
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
        """Return the keyword arguments.

        Raises:
            UsageError: The goal of the ladder is not a cosine similarity.
        """
        _goal(args.ladder)
        given = {
            "hb_yaml": args.hb_yaml,
            "quant_config": args.quant_config,
            "int16": tuple(args.int16),
            "ladder": args.ladder,
        }
        return {name: value for name, value in given.items() if value}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return nothing: the settings depend on the model, so `requested` records them.

        Raises:
            UsageError: The goal of the ladder is not a cosine similarity.
        """
        _goal(keywords.get("ladder"))
        return {}

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """Add requests about nodes, pins, backend options, refinements and data of the files to the request.

        Raises:
            DovetailError: A file cannot be read, requests something unsupported, or names something that the model
                lacks.
        """
        given = {name: value for name, value in keywords.items() if value and name != "ladder"}
        if given:
            from dovetail_bpu_int8.vendor.request import changed

            request = changed(request, model, **given)
        from dovetail_bpu_int8.calibration_search import with_scheme_of_plan

        request = with_scheme_of_plan(request)
        goal = _goal(keywords.get("ladder"))
        if goal is not None:
            own = {**request.options.get(OPTION, {}), "ladder": goal}
            request = replace(request, options={**request.options, OPTION: own})
        return request

    def node_requests(self, recorded: Mapping[str, Any]) -> Iterable[NodeRequest]:
        """Return the formats and places that the files and `--int16` ask for."""
        return requests_of(recorded)

    def begin(self, job: CompileJob) -> None:
        """Check that there is data to calibrate with, and that a ladder can be climbed.

        Raises:
            DovetailError: A YAML file of the vendor's tools has no calibration data, and none was given.
            UsageError: The ladder lacks data, or conflicts with the request.
        """
        if _goal(job.keywords.get("ladder")) is not None:
            from dovetail_bpu_int8.mixed_precision_search import check_ladder

            check_ladder(job)
        lacking = job.request.options.get(OPTION, {}).get("no_data")
        if lacking and job.recognized is None and job.request.plan is None:
            from dovetail_bpu_int8.vendor.asked import OTHER_DATA

            raise DovetailError(lacking, OTHER_DATA)

    def policies(self, job: CompileJob, phase: Phase) -> Iterable[Policy]:
        """Choose an observer if none was chosen, and climb the ladder, step by step."""
        if phase == "observe" and any(choice.name == BACKEND for choice in job.request.backends):
            from dovetail_bpu_int8.calibration_search import ChooseObserver, wants_search

            return [ChooseObserver(job)] if wants_search(job) else []
        goal = _goal(job.keywords.get("ladder"))
        if phase == "raise" and goal is not None:
            from dovetail_bpu_int8.mixed_precision_search import Ladder

            return [Ladder(job, goal)]
        return []

    def finish(self, job: CompileJob, compiled: CompiledModel) -> None:
        """Check that the BPU has something to do.

        Raises:
            DovetailError: The BPU is the only requested backend, and no node can be placed on it.
        """
        check_used(job.request, compiled)

    def judge(self, job: CompileJob, compiled: CompiledModel) -> None:
        """Check whether a recognized result missed the goal of its ladder.

        Raises:
            GoalError: It did.
        """
        goal = _goal(job.keywords.get("ladder"))
        if goal is not None and job.recognized is not None:
            from dovetail_bpu_int8.mixed_precision_search import check_recorded

            check_recorded(job, compiled, goal)


BPU = BpuOption()


def _goal(given: object) -> float | None:
    """Return the goal of the ladder; None for no ladder. Compilations without one import nothing that searches."""
    if given is None or given is False:
        return None
    from dovetail_bpu_int8.mixed_precision_search import checked_goal

    return checked_goal(given)


class VendorNotes(Pass):
    """Emit remarks for settings of hb_mapper and hb_compile files that are ignored or handled differently.

    Given:  config.yaml:31, optimization asymmetric
    Result: a note that activations are symmetric here
    """

    name = "vendor-notes"
    stage = "normalize"

    def run(self, model: Model, ctx: Context) -> bool:
        """Emit the remarks that the option has recorded."""
        for why, suggest in ctx.request.options.get(OPTION, {}).get("notes", ()):
            ctx.remark("analysis", "", "vendor-file", why, suggest=suggest)
        return False
