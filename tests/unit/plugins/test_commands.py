"""Commands of plugins: listed beside core's, run as these are, and named with their distribution when they fail."""

import pytest
from dovetail.cli.main import main
from dovetail.plugin import load_plugins

COMMAND = """
class Hello:
    def add_arguments(self, parser):
        parser.add_argument("who", nargs="?", default="world")

    def run(self, args):
        {body}

HELLO = Hello()
"""
REGISTER = 'registry.command("hello", "acme_plugin.hello:HELLO", "machine", "Say hello.")'


@pytest.fixture
def hello(install, plugin):
    """Install a command `hello` whose `run` has the given body."""

    def put(body='print(f"hello, {args.who}")', source=COMMAND, register=REGISTER):
        files = {"acme_plugin/__init__.py": plugin(register=register)}
        files["acme_plugin/hello.py"] = source.format(body=body)
        install("acme", {"acme": "acme_plugin"}, files)

    return put


def test_a_command_is_listed_and_run(hello, capsys):
    hello()
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "hello Say hello." in " ".join(listed.split())
    assert "compile Compile a model" in " ".join(listed.split())
    assert main(["hello", "you"]) == 0
    assert capsys.readouterr().out == "hello, you\n"
    assert main(["hello", "--help"]) == 0
    assert "usage: dovetail hello" in capsys.readouterr().out


def test_what_it_returns_is_the_exit_code(hello, capsys):
    hello("return 1")
    assert main(["hello"]) == 1
    assert main(["hello", "a", "b"]) == 2
    assert "unrecognized arguments: b" in capsys.readouterr().err


def test_an_error_for_users_is_printed_as_that_of_any_command(hello, capsys):
    hello("from dovetail.plugin import UsageError; raise UsageError('no', 'say yes')")
    assert main(["hello"]) == 2
    assert capsys.readouterr().err == "error: no\n  say yes\n"


@pytest.mark.parametrize("body", ["1 / 0", "raise SystemExit(0)", "return 'fine'"])
def test_any_other_exception_is_named_with_its_distribution(hello, body, capsys):
    hello(body)
    assert main(["hello"]) == 1
    error = capsys.readouterr().err
    assert "error: command 'hello' of acme raised" in error
    assert "report it to acme" in error
    assert main(["passes"]) == 0, "the rest works"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nothing_of_this_name", "cannot be loaded from acme_plugin.hello:HELLO: ModuleNotFoundError"),
        ("HELLO = 3", "has no add_arguments, run"),
        (COMMAND.replace("HELLO = Hello()", "HELLO = Hello"), "is a class"),
    ],
)
def test_one_that_does_not_load_is_listed_and_an_error_when_called(hello, source, says, capsys):
    hello(source=source)
    assert main(["--help"]) == 0
    assert "hello" in capsys.readouterr().out, "the help imports no command"
    assert main(["hello"]) == 1
    assert says in capsys.readouterr().err


def test_the_help_lists_commands_by_group_and_a_vendors_by_its_word(hello, capsys):
    both = 'registry.command("acme {}", "acme_plugin.hello:HELLO", "{}", "Say hello.")'
    hello(register=f"{both.format('greet', 'extend')}; {both.format('meet', 'measure')}")
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    headings = [line for line in listed.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "compile and run:",
        "understand a result:",
        "measure accuracy and time:",
        "extend:",
        "this machine:",
    ]
    assert listed.index("measure accuracy") < listed.index("acme meet") < listed.index("extend:")
    assert main(["acme", "--help"]) == 0
    listed = capsys.readouterr().out
    assert "acme greet" in listed and "acme meet" in listed and "compile" not in listed
    assert main(["acme", "meet", "you"]) == 0
    assert capsys.readouterr().out == "hello, you\n"
    assert main(["acme", "met"]) == 2
    assert "there is no command 'acme met' (did you mean 'acme meet' or 'acme greet'?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            '"hello", "acme_plugin.hello:HELLO", "all", "Say hello."',
            "in the group 'all'; there are compile, understand",
        ),
        ('"hello", "acme_plugin.hello:HELLO", "machine", ""', "without a summary"),
        (
            '"say hello you", "acme_plugin.hello:HELLO", "machine", "Say hello."',
            "command name 'say hello you' may hold",
        ),
        ('"hello", "acme_plugin.hello:HELLO"', "missing 2 required positional arguments"),
    ],
)
def test_a_registration_that_is_not_valid_is_named(hello, arguments, says, capsys):
    hello(register=f"registry.command({arguments})")
    main(["plugins"])
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "owner"), [("plugins", "dovetail-core"), ("verify", "dovetail-verify")], ids=["core", "plugin"]
)
def test_the_name_of_an_installed_command_is_taken(hello, name, owner, capsys):
    hello(register=f'registry.command("{name}", "acme_plugin.hello:HELLO", "machine", "Say hello.")')
    assert main(["--help"]) == 0
    warned = capsys.readouterr().err
    assert f"command '{name}' is registered by " in warned
    assert f"{owner} (dovetail" in warned and "acme (acme_plugin.hello:HELLO)" in warned
    assert main(["backends", "--no-plugin", "acme"]) == 0
    assert "is registered by" not in capsys.readouterr().err


def test_it_can_be_left_out(hello, capsys):
    hello()
    assert main(["hello", "--no-plugin", "acme"]) == 2
    assert "there is no command 'hello'" in capsys.readouterr().err


def test_a_misspelled_command_has_near_misses(capsys):
    assert main(["complie"]) == 2
    assert "there is no command 'complie' (did you mean 'compile'?)" in capsys.readouterr().err


def test_a_renamed_command_has_its_new_name(capsys):
    assert main(["hb-diff", "out", "log"]) == 2
    assert "there is no command 'hb-diff', which is 'bpu diff' now" in capsys.readouterr().err


def test_core_is_listed_like_any_plugin():
    registry = load_plugins().registry
    assert registry.command.entry("plugins").owner == "dovetail-core"
    assert registry.command.entry("compile").owner == "dovetail-commands"
