"""The function `double_run`, for a vendor's own tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
import numpy as np
from dovetail.errors import DovetailError
from dovetail.text import did_you_mean
from dovetail_kernels.library import kernels_of
from dovetail_kernels.operator_files.library import Definition, library_of

from dovetail_testing.case import Case, CaseMeasurement, PreparedCase
from dovetail_testing.running import measure

if TYPE_CHECKING:
    from dovetail.passes import BackendChoice
    from dovetail.plugin import PluginSet


_OPERATOR = re.compile(r"([\w.]+::)?\w+")


@dataclass(frozen=True)
class DoubleRun:
    """Result of the double run of a model or an operator.

    Attributes:
        name: The model or the operator.
        backend: The backend with its options.
        runs: One measurement for a model, one per case for an operator.
    """

    name: str
    backend: str
    runs: tuple[CaseMeasurement, ...]

    @property
    def placed(self) -> bool:
        """Whether every run placed a node on the backend."""
        return all(run.placed for run in self.runs)

    @property
    def exact(self) -> bool:
        """Whether all results are equal after rounding to their formats."""
        return all(run.outcome == "compared" and run.exact for run in self.runs)

    @property
    def share(self) -> float:
        """The largest difference relative to the largest magnitude of its output."""
        return max((run.share for run in self.runs), default=0.0)

    @property
    def problems(self) -> list[str]:
        """Descriptions of runs that fail or cannot be compared."""
        return [f"{run.name}: {run.line()}" for run in self.runs if run.outcome != "host" and run.problem]

    def check(self, tolerance: float = 0.0, *, allow_host: bool = False) -> None:
        """Fail a test unless everything is on the backend and within a tolerance.

        Args:
            tolerance: The largest allowed difference relative to the largest magnitude of an output; 0 requires exact
                results.
            allow_host: Whether runs may have no node on the backend.

        Raises:
            AssertionError: A run does not pass; the message gives the run and its difference.
        """
        bad = [run for run in self.runs if not _passes(run, tolerance, allow_host)]
        if bad:
            lines = "\n".join(f"  {run.name}: {run.line()}" for run in bad)
            raise AssertionError(f"{self.name} on {self.backend} (tolerance {tolerance:g}):\n{lines}")

    def __str__(self) -> str:
        return "\n".join([f"{self.name} on {self.backend}:", *(f"  {run.name}: {run.line()}" for run in self.runs)])


def _passes(run: CaseMeasurement, tolerance: float, allow_host: bool) -> bool:
    if run.outcome == "host":
        return allow_host
    return run.outcome == "compared" and not run.problem and (run.exact or run.share <= tolerance)


def double_run(
    subject: Any,
    backend: str | BackendChoice,
    inputs: Mapping[str, Any] | None = None,
    *,
    attributes: Mapping[str, object] | None = None,
    plugins: PluginSet | None = None,
    **options: Any,
) -> DoubleRun:
    """Run a model or an operator on a reference and compiled for a backend, and compare the results.

    The reference is ONNX Runtime or the reference of the onnx package on the source model; for an operator of a file,
    its composite or its kernel, called directly.

    Args:
        subject: A model that `dovetail.open` accepts, or the name of an operator: `Conv`, `acme::scale`.
        backend: The backend, with options as after `--backend`.
        inputs: An array for each input; for a model, arrays named after outputs are expected results. By default inputs
            are generated, and an operator of ONNX runs onnx's node tests.
        attributes: Attributes of an operator with inputs.
        plugins: Plugins with backend and operators; by default all installed ones.
        options: Keyword arguments of `dovetail.compile`.

    Raises:
        DovetailError: The operator does not exist, or inputs do not match.
    """
    plugins = plugins or dovetail.load_plugins()
    if isinstance(subject, str) and _OPERATOR.fullmatch(subject) and not Path(subject).exists():
        name, found = subject, _operator_cases(subject, inputs, attributes or {}, plugins)
    else:
        from dovetail_testing.model_cases import work_of_model

        name = str(subject) if isinstance(subject, (str, Path)) else "the model"
        work = work_of_model(subject, inputs, plugins)
        found = (Case("models", name, "", lambda _: work),)
    runs = tuple(measure(case, backend, plugins, options) for case in found)
    return DoubleRun(name, str(backend), runs)


def _operator_cases(
    label: str, inputs: Mapping[str, Any] | None, attributes: Mapping[str, object], plugins: PluginSet
) -> tuple[Case, ...]:
    from dovetail_testing.operator_cases import work_of
    from dovetail_testing.suites import cases

    plugins.prepare()
    domain, _, name = label.rpartition("::")
    definition = library_of(plugins.registry).get(domain, name)
    if inputs is None:
        suite = "nodes" if definition is None else "operators"
        found = tuple(case for case in cases(suite, plugins) if case.operator == label)
        if not found:
            known = {case.operator for each in ("nodes", "operators") for case in cases(each, plugins)}
            raise DovetailError(
                f"no test is about an operator '{label}', and no file of that name exists{did_you_mean(label, known)}",
                "name an operator as Conv or acme::scale, or give inputs",
            )
        return found
    arrays = {key: value if isinstance(value, list) else np.asarray(value) for key, value in inputs.items()}
    if definition is None:
        work = _onnx_work(domain, name, arrays, attributes)
    else:
        _check_inputs(definition, label, arrays)
        kernels_of(plugins.registry)
        work = work_of(definition, domain, arrays, attributes, plugins)
    return (Case("operators", label, label, lambda _: work),)


def _check_inputs(definition: Definition, label: str, arrays: Mapping[str, Any]) -> None:
    names = [arg.name for arg in definition.entry.inputs]
    for name in arrays:
        if name not in names:
            raise DovetailError(
                f"{label} has no input '{name}'{did_you_mean(name, names)}", f"inputs: {', '.join(names)}"
            )


def _onnx_work(domain: str, name: str, arrays: Mapping[str, Any], attributes: Mapping[str, object]) -> PreparedCase:
    """Create a single-node model of an ONNX operator."""
    import onnx

    from dovetail_testing.operator_cases import node_model
    from dovetail_testing.running import references_of

    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain}
    if name not in names:
        raise DovetailError(f"there is no operator '{name}'{did_you_mean(name, names)}", "name one as Conv")
    schema = onnx.defs.get_schema(name, domain)
    model = node_model(domain, name, arrays, schema.min_output, {domain: schema.since_version})
    model.graph.node[0].attribute.extend(onnx.helper.make_attribute(*each) for each in attributes.items())
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return PreparedCase(model, arrays, {}, references_of(model), model)
