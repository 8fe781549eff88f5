"""The command line as a module: `python -P -m dovetail compile model.onnx`."""

from dovetail.cli.main import program

if __name__ == "__main__":
    program()
