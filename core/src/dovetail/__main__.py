"""The command line as a module: `python -P -m dovetail compile model.onnx`."""

from dovetail.cli.main import program

program()
