"""`dovetail` without its start: a server that has imported everything, and forks a process for every command.

A command has a process, a folder, an environment and standard streams of its own, as the program has; only that it
does not import numpy, onnx and the engines once more. `python program_server.py SOCKET` serves; `start`, `run` and
`write_clients` are for tests.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import traceback
import types
from pathlib import Path

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({path!r})
    request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    if sys.argv[1:2] == ["-c"]:
        request |= {{"arguments": sys.argv[3:], "code": sys.argv[2]}}
    socket.send_fds(connection, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
    sys.exit(int(connection.makefile().readline()))
"""


def start(path):
    """A server at the path of a socket, ready to be asked."""
    server = subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "ready\n"
    return server


def write_clients(path, folder):
    """Write programs `dovetail ...` and `python -c ...` that ask the server at that path."""
    for name in ("dovetail", "python"):
        client = Path(folder) / name
        client.write_text(CLIENT.format(python=sys.executable, path=str(path)))
        client.chmod(0o755)


def run(path, arguments, environment, code=None):
    """What `subprocess.run([PYTHON, "-m", "dovetail.cli.main", ...])` returns, or of `[PYTHON, "-c", code]`."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(str(path))
        connection.settimeout(300)
        names = [f"{path}.{os.getpid()}.{stream}" for stream in ("out", "err")]
        streams = [stack.enter_context(open(name, "w+b")) for name in names]
        nothing = stack.enter_context(open(os.devnull))
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": environment, "code": code}
        files = [nothing.fileno(), *(stream.fileno() for stream in streams)]
        socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], files)
        returncode = int(connection.makefile().readline())
        out, err = (Path(name).read_text(encoding="utf-8") for name in names)
    return subprocess.CompletedProcess(arguments, returncode, out, err)


def _serve(path):
    """Fork for one connection after the other; two at a time do not wait for each other."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _answer(connection)
                os._exit(0)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(connection):
    data, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    child = os.fork()
    if child == 0:
        connection.close()
        _become(files, **json.loads(data))
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(files, arguments, folder, environment, code=None):
    """Be the command: never returns."""
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # As `python -m` and `python -c` have it: the current folder, then PYTHONPATH.
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[:] = ["dovetail", *arguments]
    status = 0
    try:
        if code is None:
            from dovetail.cli.main import program

            sys.exit(program())
        else:
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(main))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 255)


def _import_all():
    """All modules of the installed plugins and backends, and of the engines that are there."""
    import dovetail.api  # noqa: F401
    from dovetail.plugin import load_plugins

    load_plugins()
    for engine in ("onnx", "onnx_ir", "onnxruntime", "openvino"):
        with contextlib.suppress(ImportError):
            importlib.import_module(engine)
    for package in sorted({name.partition(".")[0] for name in list(sys.modules) if name.startswith("dovetail")}):
        for module in pkgutil.walk_packages(getattr(sys.modules[package], "__path__", ()), f"{package}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:  # of an extra, such as torch
                if (missing.name or "").startswith("dovetail"):
                    raise
    _load_backends()
    gc.freeze()


def _load_backends():
    """Load the bundled backends, which every forked process then has already."""
    from dovetail.passes import BackendChoice, Context, Request
    from dovetail.plugin import load_plugins

    plugins = load_plugins()
    for name in plugins.registry.backend:
        Context(Request((BackendChoice(name),)), plugins=plugins).load_backends()


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    sys.path.insert(0, "")
    _import_all()
    _serve(sys.argv[1])
