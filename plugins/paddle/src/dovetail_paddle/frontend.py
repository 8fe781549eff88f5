"""The front end for programs of Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.plugin import Frontend

if TYPE_CHECKING:
    from dovetail.ir.model import Model


class PaddleFrontend(Frontend):
    """Reads programs with their parameters, which lie beside them with the suffix `.pdiparams`."""

    suffixes = (".pdmodel", ".json")

    def read(self, path: Path) -> Model:
        """Open a program as a model of `pd_op` operators, which the pass `lower-paddle` lowers to ONNX.

        Raises:
            DovetailError: The program or its parameters are malformed.
        """
        from dovetail.gc_pause import gc_paused
        from dovetail.ir.model import Model

        from dovetail_paddle.dialect import PaddleDialect

        parameters = path.with_suffix(".pdiparams")
        with gc_paused():
            if path.suffix == ".json":
                from dovetail_paddle.pir.program import read_pir

                return Model(read_pir(path, parameters), path, dialect=PaddleDialect())
            from dovetail_paddle.legacy.reading import read_program
            from dovetail_paddle.translate.program import translate

            return Model(translate(read_program(path), str(path), parameters), path, dialect=PaddleDialect())
