"""`dovetail.InferenceSession`: a compiled model behind the interface of `onnxruntime.InferenceSession`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, EngineWarning
from dovetail_onnx import onnx_runtime

from dovetail_adapters.fed_values import as_arrays, as_read_natively
from dovetail_adapters.io_binding import IOBinding
from dovetail_adapters.model_facts import facts_of
from dovetail_adapters.opening import Opening, joined, source_session
from dovetail_adapters.reopening import absolute, reduced

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.api import AnyModel
    from dovetail.plugin import CompiledModel, PluginSet
    from dovetail_runtime.restarting import RestartedResult

    from dovetail_adapters.model_facts import SessionFacts
    from dovetail_adapters.opening import Providers


class InferenceSession:
    """Runs a compiled model by the methods of `onnxruntime.InferenceSession`; thread-safe.

    Where one session of ONNX Runtime runs the whole result, calls go straight to it, and methods that are not listed
    here are its own. Its errors are then those that callers of ONNX Runtime expect. If another engine could take over,
    it does, as in `CompiledModel.run`. Other results run on their engines, and raise `dovetail.DovetailError`.

    Pickles and copies open the model again, by its absolute path, with the same request. Pickles carry the attributes
    of `sess_options`; its configuration entries and custom operators cannot be read, and are not in them.

    Args:
        path_or_bytes: The folder of a saved result, or a model: a path, its bytes, an `onnx.ModelProto`, ... A model is
            compiled; see `dovetail.compile`.
        sess_options: Settings of ONNX Runtime's sessions, for the parts that it runs; `intra_op_num_threads` counts for
            all engines.
        providers: Names of backends in order of preference, for programs that have this argument; `backend` counts if
            both are given. ONNX Runtime's own names choose the host.
        provider_options: Options for each of `providers`.
        backend: The backend or backends to compile for: `cpu-bf16`, `["npu", "cpu-bf16"]`, ... The host by default,
            which is ONNX Runtime on the CPU.
        enable_fallback: Ignored, because engines are replaced in any case; ONNX Runtime has this argument.
        disabled_optimizers: Names of optimizers that ONNX Runtime should not use.
        cache: Whether a result of an earlier program is taken from the user's cache, and this one kept there
            (`dovetail cache`); requests with data from generators or plugins without a distribution are not.
        background: Answer at once, by ONNX Runtime on the source model, until the result is compiled in another thread.
        plugins: The plugins to use; all installed ones by default.
        options: Further keywords of `dovetail.compile`: `data`, `min_snr`, `high`, ...

    Raises:
        UsageError: A saved result is to be compiled again, or providers and their options do not match.
        DovetailError: The model or the request is at fault, or no engine takes a region.

    Warns:
        EngineWarning: Another engine than the preferred one of a backend runs a region, at first or from some call on.
    """

    def __init__(
        self,
        path_or_bytes: AnyModel,
        sess_options: ort.SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        *,
        backend: str | Sequence[str] = (),
        enable_fallback: int = 1,
        disabled_optimizers: Sequence[str] | None = None,
        cache: bool = True,
        background: bool = False,
        plugins: PluginSet | None = None,
        **options: Any,
    ):
        self._arguments = {
            "path_or_bytes": absolute(path_or_bytes), "sess_options": sess_options, "providers": providers,
            "provider_options": provider_options, "backend": backend, "disabled_optimizers": disabled_optimizers,
            "cache": cache, "background": background, "plugins": plugins, **options,
        }  # fmt: skip
        chosen = joined(providers, provider_options)
        self._sess_options = sess_options
        self._optimizers = list(disabled_optimizers or ())
        self._coming: Future[CompiledModel] | None = None
        self._compiled: CompiledModel | None = None
        self._lock = threading.Lock()
        self._opening = Opening(path_or_bytes, backend, providers=chosen, plugins=plugins, cache=cache, options=options)
        self._native: Any = None
        self._restarted: RestartedResult | None = None
        self._facts: SessionFacts | None = None
        found = self._opening.restarted(self._options)
        if found is not None:
            self._restarted, self._facts = found
            self._native, self._is_last = self._restarted.native, self._restarted.is_last
        elif background and self._opening.saved is None:
            self._native, self._is_last = source_session(path_or_bytes, sess_options), True
            self._coming = Future()
            threading.Thread(target=self._compile, name="dovetail-compile", daemon=True).start()
        else:
            self._take(self._opening.compiled())

    @property
    def compiled(self) -> CompiledModel:
        """The `CompiledModel` that runs; it is waited for if it is compiled in the background.

        Raises:
            DovetailError: It could not be compiled in the background; the source model runs.
        """
        if self._coming is not None:
            return self._coming.result()
        with self._lock:
            if self._compiled is None:  # it was not needed to run it
                self._compiled = self._with_settings(self._opening.compiled())
            return self._compiled

    def _compile(self) -> None:
        """Compile in a thread, and run the result from then on; what fails is a warning, and the source model stays."""
        assert self._coming is not None, "the thread is started with it"
        try:
            compiled = self._opening.compiled()
            self._take(compiled)
        except BaseException as error:
            self._coming.set_exception(error)
            warnings.warn(f"not compiled in the background, the source model runs: {error}", stacklevel=1)
        else:
            self._coming.set_result(compiled)

    def _take(self, compiled: CompiledModel) -> None:
        """Run a result from now on."""
        from dovetail_runtime.whole_session import whole_session

        whole = whole_session(self._with_settings(compiled))
        self._compiled = compiled
        self._is_last = whole is None or whole.is_last
        self._native = whole.native if whole is not None else None
        replaced = compiled.runner.stand_ins().removeprefix("; ")
        if replaced:
            why = "; ".join(compiled.runner.notes)
            hint = "install what the preferred engine needs, or name a backend of this machine"
            warnings.warn(f"{replaced} instead of the preferred engine: {why}; {hint}", EngineWarning, stacklevel=3)
        else:  # the next program looks for the preferred engine again
            self._opening.keep(compiled, facts_of(compiled))

    def _with_settings(self, compiled: CompiledModel) -> CompiledModel:
        compiled.options.update(self._options)
        return compiled

    @property
    def _options(self) -> dict[str, object]:
        """Options of engines that follow from the settings."""
        options: dict[str, object] = {}
        if self._sess_options is not None:
            options["session_options"] = self._sess_options
            if self._sess_options.intra_op_num_threads:
                options["threads"] = self._sess_options.intra_op_num_threads
        if self._optimizers:
            options["disabled_optimizers"] = self._optimizers
        return options

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: ort.RunOptions | None = None,
    ) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: Names of the outputs to return, in this order; all if None or empty.
            input_feed: An array for each input, by name.
            run_options: Options of ONNX Runtime for this run; ignored where other engines take part.

        Raises:
            DovetailError: An input is missing or does not fit, there is no such output, or an engine fails. Where ONNX
                Runtime runs the whole result, its own exceptions are raised instead.
        """
        native = self._native  # another one, once what is compiled in the background is there
        if native is not None:
            input_feed = as_read_natively(input_feed)
            if self._is_last:
                return native.run(output_names, input_feed, run_options)
            try:
                return native.run(output_names, input_feed, run_options)
            except Exception:
                if run_options is not None:
                    raise
        results = self._compute(input_feed)
        return [results[name] for name in self._wanted(output_names)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: object = None,
        run_options: ort.RunOptions | None = None,
    ) -> None:
        """Compute outputs in another thread, which then calls `callback(results, user_data, error)`.

        Args:
            output_names, input_feed, run_options: As for `run`.
            callback: Gets the results and an empty text, or an empty list and what went wrong.
            user_data: Passed to `callback`.
        """
        native = self._native
        if native is not None and self._is_last:
            native.run_async(output_names, as_read_natively(input_feed), callback, user_data, run_options)
            return

        def work() -> None:
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:
                callback([], user_data, str(error))
            else:
                callback(results, user_data, "")

        threading.Thread(target=work, name="dovetail-run-async", daemon=True).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, ort.OrtValue],
        run_options: ort.RunOptions | None = None,
    ) -> list[ort.OrtValue]:
        """Compute outputs from values of ONNX Runtime, as such values; see `run`."""
        native = self._native
        if native is not None and self._is_last:
            return list(native.run_with_ort_values(output_names, input_dict_ort_values, run_options))
        ort = onnx_runtime()
        return [ort.OrtValue.ortvalue_from_numpy(a) for a in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> ort.IOBinding | IOBinding:
        """Return a binding of inputs and outputs for `run_with_iobinding`.

        It is ONNX Runtime's own where it runs the whole result; otherwise one for arrays in main memory.
        """
        if self._native is not None:
            return self._native.io_binding()
        return IOBinding(self._outputs, self._compute)

    def run_with_iobinding(
        self, iobinding: ort.IOBinding | IOBinding, run_options: ort.RunOptions | None = None
    ) -> None:
        """Compute the outputs of a binding from its inputs.

        Raises:
            DovetailError: As for `run`, or the binding was made for a session of ONNX Runtime alone.
        """
        if isinstance(iobinding, IOBinding):
            iobinding.run()
        elif self._native is not None:
            self._native.run_with_iobinding(iobinding, run_options)
        else:
            raise DovetailError(
                "the binding belongs to a session of ONNX Runtime, and several engines run this result",
                "take the binding from io_binding() of this session",
            )

    def get_inputs(self) -> list[Any]:
        """Return name, type and shape of every input that has no default."""
        return list(self._native.get_inputs()) if self._native is not None else self._said.inputs

    def get_outputs(self) -> list[Any]:
        """Return name, type and shape of every output."""
        return list(self._native.get_outputs()) if self._native is not None else self._said.outputs

    def get_overridable_initializers(self) -> list[Any]:
        """Return name, type and shape of every input that has a default."""
        return list(self._native.get_overridable_initializers()) if self._native is not None else self._said.overridable

    def get_modelmeta(self) -> Any:
        """Return the metadata of the model, without the entries that the compilation added; see `ModelMetadata`."""
        return self._said.metadata

    def get_providers(self) -> list[str]:
        """Return what runs the model: providers of ONNX Runtime, and backends on other engines.

        The list is in the order of regions, with the host's provider at the end, as in ONNX Runtime.
        """
        return list(self._said.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of every provider; for a backend those chosen by the request."""
        if self._native is not None:
            return dict(self._native.get_provider_options())
        return self._said.provider_options

    def get_session_options(self) -> ort.SessionOptions | None:
        """Return the settings of ONNX Runtime's sessions; None if there are several and none were given."""
        return self._native.get_session_options() if self._native is not None else self._sess_options

    def disable_fallback(self) -> None:
        """Do nothing: engines are replaced in any case."""

    def enable_fallback(self) -> None:
        """Do nothing: engines are replaced in any case."""

    @cached_property
    def _outputs(self) -> list[str]:
        """Names of the outputs in order; a result has those of its source."""
        return [value.name for value in self.get_outputs()]

    @property
    def _said(self) -> SessionFacts:
        """What it says of the model and of what runs it."""
        if self._facts is not None and self._compiled is None and self._coming is None:
            return self._facts
        return facts_of(self.compiled)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(type(self), self._arguments)

    def __copy__(self) -> InferenceSession:
        return type(self)(**self._arguments)

    def __deepcopy__(self, memo: dict[int, object]) -> InferenceSession:
        return type(self)(**self._arguments)

    def __repr__(self) -> str:
        waiting = self._coming is not None and not self._coming.done()
        return f"<InferenceSession of {'a model that is being compiled' if waiting else repr(self.compiled)}>"

    def __getattr__(self, name: str) -> Any:
        # Only for names that are not defined here. Private ones are looked up too: ONNX Runtime's own classes take the
        # inner session from a session's `_sess`.
        native = self.__dict__.get("_native")
        if native is not None:
            return getattr(native, name)
        why = ": a session of ONNX Runtime may have it, and several engines run this result"
        raise AttributeError(f"InferenceSession has no attribute {name!r}{why if '_native' in vars(self) else ''}")

    def _compute(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run on the engines; values of ONNX Runtime count as the arrays in them."""
        arrays = as_arrays(inputs)
        restarted = self._restarted
        if restarted is not None and self._native is None:
            results = restarted.run(arrays)
            if results is not None:
                return results
        results = self.compiled.run(arrays)
        self._restarted = None  # its engines have loaded the result now
        return results

    def _wanted(self, names: Sequence[str] | None) -> Sequence[str]:
        """Return the names of the outputs to return.

        Raises:
            DovetailError: There is no such output.
        """
        for name in names or ():
            if name not in self._outputs:
                raise DovetailError(f"the model has no output '{name}'", f"its outputs are {', '.join(self._outputs)}")
        return names or self._outputs
