"""What a plugin may do to the commands: nothing that ends them without a word, and nothing on standard output."""

import json
import sys
import threading

import pytest
from dovetail.cli.main import main
from dovetail.plugin.loading import foreign_output

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2] x) => (float[2] y) { [relu] y = Relu (x) }"""

PASS = """
from dataclasses import dataclass
from dovetail.passes import Pass

@dataclass(frozen=True)
class Acme(Pass):
    name = "acme-pass"
    stage = "analyze"

    def run(self, model, ctx):
        {body}
        return False
"""


@pytest.fixture
def command(tmp_path, monkeypatch, install, plugin, capsys):
    """Install the plugin `acme`, then compile a small model; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnxtxt").write_text(MODEL)

    def run(source=None, body="pass", arguments=("--json",), **hooks):
        hooks.setdefault("register", 'registry.pass_("acme-pass", "acme_passes:Acme")')
        files = {"acme_plugin.py": source or plugin(**hooks), "acme_passes.py": PASS.format(body=body)}
        install("dovetail-acme", {"acme": "acme_plugin"}, files)
        code = main(["compile", "m.onnxtxt", "--backend", "host", *arguments])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("hook", ["before_pass", "after_pass", "configure_pipeline"])
@pytest.mark.parametrize("act", ["raise SystemExit(0)", "raise SystemExit", "import sys; sys.exit()"])
def test_a_hook_cannot_end_a_command_silently(command, hook, act):
    code, out, err = command(**{hook: act})
    assert code == 1 and "error" in json.loads(out)
    assert f"error: plugin acme (dovetail-acme): its hook {hook} tries to end the program (SystemExit" in err
    assert "--no-plugin acme" in err


def test_a_hook_that_raises_costs_a_warning(command):
    code, out, err = command(before_pass="1 / 0")
    assert code == 0 and json.loads(out)["summary"]
    assert err.count("warning: plugin acme (dovetail-acme): before_pass raised ZeroDivisionError") == 1


@pytest.mark.parametrize("error", ["SystemExit(0)", "BaseException('no')", "GeneratorExit()", "ImportError('x')"])
def test_a_plugin_that_cannot_be_imported_is_left_out(command, error):
    code, out, err = command(source=f"raise {error}\n")
    assert code == 0 and json.loads(out)["summary"]
    assert "warning: plugin acme (dovetail-acme): does not import" in err


@pytest.mark.parametrize("error", ["SystemExit(0)", "BaseException('no')"])
def test_a_register_that_ends_the_program_is_left_out(command, error):
    code, out, err = command(register=f"raise {error}")
    assert code == 0 and json.loads(out)["summary"]
    assert f"warning: plugin acme (dovetail-acme): register: {error.partition('(')[0]}" in err


@pytest.mark.parametrize("where", ["import", "register", "hook", "pass"])
def test_what_a_plugin_prints_stays_out_of_standard_output(command, plugin, where):
    say = 'print("hello from acme")'
    if where == "import":
        code, out, err = command(source=say + "\n" + plugin(register="pass"))
    elif where == "pass":
        code, out, err = command(body=say)
    else:
        code, out, err = command(**{"register" if where == "register" else "before_pass": say})
    assert code == 0 and json.loads(out)["summary"]
    assert "hello from acme" in err
    assert "(dovetail-acme) prints to standard output" in err or "of dovetail-acme prints to standard output" in err


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "raise SystemExit", "raise GeneratorExit", "1 / 0"])
def test_a_pass_cannot_end_a_command_silently(command, body):
    code, out, err = command(body=body)
    assert code == 1 and "error" in json.loads(out)
    assert "error: pass 'acme-pass' of dovetail-acme failed" in err


def test_an_entry_that_ends_the_program_when_it_is_imported(command, install):
    install("dovetail-brick", {"brick": "brick_plugin"}, {"brick_passes.py": "raise SystemExit(0)", "brick_plugin.py":
        "from dovetail.plugin import hookimpl\ndovetail_api = 1\n\n@hookimpl\ndef register(registry):\n"
        '    registry.pass_("brick-pass", "brick_passes:Brick")\n'})  # fmt: skip
    code, _, err = command()
    assert code == 0
    assert "pass 'brick-pass' of dovetail-brick cannot be loaded from brick_passes:Brick: SystemExit: 0" in err
    assert "it is left out" in err


def test_standard_output_survives_threads_that_call_plugins_in_turn():
    """The first one leaves while the second one is still inside: it must not restore what belongs to the first."""
    before, entered, left = sys.stdout, threading.Event(), threading.Event()

    def second():
        with foreign_output("acme"):
            entered.set()
            left.wait()

    thread = threading.Thread(target=second)
    with foreign_output("brick"):
        thread.start()
        entered.wait()
    left.set()
    thread.join()
    assert sys.stdout is before
