"""What becomes of a damaged result: a right one, or one clear message; nothing outside of its folder changes."""

import contextlib
import io
import os
import shutil
import signal
import traceback
import warnings

import dovetail
import numpy as np
from dovetail.cli.main import main
from dovetail.errors import DovetailError

from .damaged_results import MODEL, REQUESTS, SAMPLES, damage, rng_of, state

ACTIONS = ("run", "explain", "compile into", "replay", "compile again", "verify")
_HANGS = 100  # seconds


def trial(seed, bases, folder, expected):
    """Damage a copy of a result, use it, and say what went wrong; an empty text if nothing did.

    Args:
        seed: Everything that is drawn.
        bases: The folder that `damaged_results.make` has filled.
        folder: An empty folder to work in.
        expected: The outputs of each result, by its name.
    """
    rng = rng_of(seed)
    name, action = rng.choice(sorted(REQUESTS)), rng.choice(ACTIONS)
    place = folder / name
    shutil.copytree(bases / name, place, symlinks=True)
    done = damage(place, rng)
    before = state(place)
    said = ""
    try:
        with _no_hanging(), contextlib.chdir(place), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = _act(action, place, name, expected[name])
    except DovetailError as error:
        said = _judged(str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})"
    after = state(place)
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if changed:
        said += f"; changed outside: {changed}"
    return f"{name}, {action}, {done}: {said}" if said else ""


def _judged(message):
    bad = "Traceback" in message or "internal error" in message or "--debug" in message
    return f"unclear message: {message[:400]}" if bad or len(message) > 3000 else ""


def _act(action, place, name, expected):
    if action == "run":
        return _same(dovetail.load("out").run(SAMPLES), expected)
    if action == "explain":
        return _command("explain", "out")
    if action == "verify":
        return _command("verify", MODEL, "out")
    backends, request, external = REQUESTS[name]
    if action == "replay":
        plan = next((path for path in ("plans/plan.yaml", "plans/plan.json", "out") if os.path.exists(path)), "out")
        dovetail.compile(MODEL, plan=plan, try_engines=False)
        return ""
    if action == "compile again":
        flags = [word for backend in backends for word in ("--backend", backend)]
        np.savez(place / "plans" / "data.npz", **SAMPLES)
        data = ["--data", "plans/data.npz"] if request else []
        said = _command("compile", MODEL, *flags, *data, "--no-try-engines", "-o", "out")
    else:
        dovetail.compile(MODEL, backends, try_engines=False, **request).save("out", external=external)
        said = ""
    if said or action == "compile again" and not os.path.exists("out/result.json"):
        return said
    return _same(dovetail.load("out").run(SAMPLES), expected)


def _command(*arguments):
    """Run a command; what is wrong with the way it ended."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(list(arguments))
        except SystemExit as end:
            code = end.code
    message = errors.getvalue()
    if code not in (0, 1):
        return f"exit code {code}: {message[:300]}"
    if code == 1 and "error: " not in message and not out.getvalue():
        return "no message"
    return _judged(message)


def _same(outputs, expected):
    wrong = [key for key, array in expected.items() if not np.allclose(outputs[key], array, 1e-2, 1e-2)]
    return f"wrong outputs: {wrong}" if wrong or outputs.keys() != expected.keys() else ""


@contextlib.contextmanager
def _no_hanging():
    """End what waits for a pipe that nobody writes: a test that hangs says nothing."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
