"""The command `dovetail tune`: one model, or every model of a folder."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import PlainCommand, existing, note, output, plugins_of, print_json, say
from dovetail.errors import DovetailError, UsageError
from dovetail_onnx.files.locations import data_location, is_remote
from dovetail_verify.arguments import add_goals, goals_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail_tune.executor_pool import Executors
    from dovetail_tune.outcome import Tuned

MODELS = (".onnx", ".onnxtxt")
DATA = (".npz", ".npy", ".pb", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from dovetail_runtime.run_command import add_device  # the help lists this command

    add = parser.add_argument
    add("model", type=Path, metavar="MODEL|FOLDER", help="a model, or a folder of ONNX models for one table")
    add(
        "--backend",
        action="append",
        default=[],
        metavar="NAME[:key=value,...]",
        help="a backend to try beside the host (repeatable; default: all that run here)",
    )
    add(
        "--data",
        type=data_location,
        metavar="FILE|FOLDER",
        help="inputs like those that the model will see: half calibrates, half judges. "
        "For a folder of models: a folder with data of the same names (default: beside each model)",
    )
    add(
        "--for",
        dest="measure",
        choices=("latency", "throughput"),
        default="latency",
        help="what is to be fast: one call (default), or as many at the same time as there are CPUs",
    )
    add("--threads", type=_numbers, default=(), metavar="N[,N...]", help="threads to try; 0 for the engine's choice")
    add("--no-mix", dest="mixed", action="store_false", help="try no plans that mix backends")
    add("--budget", metavar="SECONDS", help="time limit in seconds (per model); the best plan found so far is returned")
    add("--journal", type=output, metavar="FOLDER", help="results and journal, to resume from (default: OUT.tune)")
    add(
        "--cluster",
        metavar="ADDRESS",
        help="compile and time on the machines of a dask.distributed scheduler, as tcp://10.0.0.1:8786, that have the "
        "engines of --backend; they see the model and the journal under the same paths",
    )
    add_device(
        parser,
        "run and time results elsewhere: 'ssh board /opt/run {folder} {inputs} {outputs} --repeat {repeat}' "
        "(dovetail-export)",
    )
    add("--plot", type=output, metavar="FRONT.svg", help="plot time and noise; for a folder of models, a folder")
    add("-o", "--output", type=output, metavar="OUT", help="folder for the fastest result within the goal")
    add_goals(parser)


@dataclass(frozen=True)
class _Job:
    """One model to tune, and where its files go."""

    model: Path
    data: str | Path
    output: Path | None
    journal: Path | None
    plot: Path | None


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_runtime.run_command import check_device

    check_device(args)
    goals = goals_of(args) if args.data is not None or not args.model.is_dir() else goals_of(args, data_later=True)
    existing(args.model)
    from dovetail_commands.progress import Progress

    if args.model.is_dir() and (code := _run_as_one(args, goals)) is not None:
        return code
    folder = args.model.is_dir() and any(path.suffix in MODELS for path in args.model.iterdir())
    with Progress() as progress, _cluster(args) as executor:
        if folder:
            return _run_folder(args, goals, progress, executor)
        if args.data is None:
            raise UsageError("there is no data to tune on", "add --data: inputs like those that the model will see")
        _there(args.data)
        job = _Job(args.model, args.data, args.output, args.journal or _beside(args.output), args.plot)
        tuned = _tune(args, job, goals, progress, executor)
    _report(args, job, tuned)
    return _code(tuned)


def _there(data: str | Path) -> None:
    """Check that data exists, unless it is in another file system.

    Raises:
        DovetailError: It does not exist.
    """
    if isinstance(data, Path):
        existing(data)


def _run_as_one(args: argparse.Namespace, goals: dict[str, Any]) -> int | None:
    """Tune a folder of models that belong together, such as a language model; return None for other folders."""
    from dovetail_commands.progress import Progress
    from dovetail_commands.terminal import table

    from dovetail_tune.folders import tuned_folder

    if args.data is not None:
        _there(args.data)
    with Progress() as progress:
        tuned = tuned_folder(
            args.model, plugins_of(args), args.output, backends=args.backend, data=args.data, **goals,
            measure=args.measure, threads=args.threads, budget=args.budget, cluster=args.cluster, plot=args.plot,
            device=args.device, journal=args.journal or _beside(args.output), progress=progress,
        )  # fmt: skip
        if tuned is None:
            return None
        if args.output and tuned.is_met:
            tuned.save(args.output)
    if args.json:
        print_json({**tuned.as_dict(), "output": args.output and str(args.output)})
    else:
        table(tuned.rows())
        say(*tuned.lines())
    if not tuned.is_met:
        note(f"error: {tuned.problem}", f"  {tuned.way_out}")
    return 0 if tuned.is_met else 1


def _cluster(args: argparse.Namespace) -> AbstractContextManager[Executors | None]:
    """Return a context of the cluster's executors; of None without a cluster."""
    if args.cluster is None:
        return nullcontext()
    from dovetail_tune.candidates import needs_of
    from dovetail_tune.cluster import connect
    from dovetail_tune.tuning import distributions

    plugins = plugins_of(args)
    return connect(args.cluster, distributions(plugins), needs_of(plugins.registry, args.backend))


def _tune(
    args: argparse.Namespace,
    job: _Job,
    goals: dict[str, Any],
    progress: Callable[..., None],
    executor: Executors | None,
) -> Tuned:
    """Tune one model, and write its result and its plot."""
    from dovetail_tune.deadline import Deadline

    deadline = Deadline(args.budget)  # before what takes seconds to import
    from dovetail_onnx.files.writing import write_text

    from dovetail_tune.plot import front_svg
    from dovetail_tune.tuning import tune

    tuned = tune(
        job.model, args.backend, data=job.data, **goals, measure=args.measure, threads=args.threads, mixed=args.mixed,
        budget=deadline, journal=job.journal, executor=executor, device=args.device or "",
        device_timeout=args.device_timeout or 0.0, plugins=plugins_of(args), progress=progress,
    )  # fmt: skip
    if job.output and tuned.winner is not None:
        tuned.save(job.output)
    if job.plot:
        write_text(job.plot, front_svg(tuned))
    return tuned


def _report(args: argparse.Namespace, job: _Job, tuned: Tuned) -> None:
    from dovetail_commands.terminal import say_note, table

    if args.json:
        print_json({**tuned.as_dict(), "output": job.output and str(job.output)})
        return
    table(tuned.rows())
    for text in tuned.notes:
        say_note(text)
    say(*tuned.lines())


def _code(tuned: Tuned) -> int:
    if tuned.winner is None:
        note(f"error: {tuned.problem}", f"  {tuned.way_out}")
        return 1
    return 0


def _run_folder(
    args: argparse.Namespace, goals: dict[str, Any], progress: Callable[..., None], executor: Executors | None
) -> int:
    """Tune every model of a folder, and print one table; a model that cannot be tuned has a row that says why."""
    from dovetail_commands.terminal import table

    from dovetail_tune.outcome import combined

    outcomes: dict[str, Tuned | str] = {}
    if is_remote(args.data):
        problem = f"{args.data}: data of a folder of models is looked for by name, in a folder here"
        raise UsageError(problem, "copy it here, or tune one model")
    for model in sorted(path for path in args.model.iterdir() if path.suffix in MODELS):
        places = [place and place / model.stem for place in (args.output, args.journal)]
        plot = args.plot and args.plot / f"{model.stem}.svg"
        if plot:
            plot.parent.mkdir(parents=True, exist_ok=True)
        try:
            data = _data_for(model, args.data or args.model)
            job = _Job(model, data, places[0], places[1] or _beside(places[0]), plot)
            outcomes[model.name] = _tune(args, job, goals, progress, executor)
        except UsageError:
            raise
        except DovetailError as error:
            outcomes[model.name] = error.message
    if args.json:
        print_json({name: one if isinstance(one, str) else one.as_dict() for name, one in outcomes.items()})
    else:
        table(combined(outcomes))
    failed = [name for name, one in outcomes.items() if isinstance(one, str) or one.winner is None]
    if failed:
        note(f"error: nothing was found for {', '.join(failed)}")
    return 1 if failed else 0


def _data_for(model: Path, folder: Path) -> Path:
    """Return the file or folder with the data of a model: the same name, without the suffix or with that of data.

    Raises:
        DovetailError: There is none.
    """
    for suffix in DATA:
        if (found := folder / f"{model.stem}{suffix}").exists():
            return found
    raise DovetailError(f"no data for it: {folder} has no {model.stem}.npz", "name data after its model")


def _beside(result: Path | None) -> Path | None:
    """Return the default folder of the journal."""
    return result and result.with_name(f"{result.name}.tune")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers with commas between them are expected") from None


TUNE = PlainCommand(add_arguments, run)
