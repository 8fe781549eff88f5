"""Options of plugins: arguments of `compile`, keywords of `dovetail.compile`, and what they may do around compiling."""

import inspect
import json
import warnings
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.plugin import load_plugins
from dovetail.plugin.options import COMPILE_KEYWORDS

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {1,0,0,0, 0,2,0,0, 0,0,3,0, 0,0,0,4}>
{ [dense] a = MatMul (x, w)  [relu] y = Relu (a) }"""
OPTION = """
from dataclasses import dataclass, replace
from dovetail.planning import Remark
from dovetail.plugin import Measure, Option, Outcome, Policy, Proposal, Stepwise

seen = []

class Hello(Option):
    commands = ("compile",)
    keywords = ("hello",)

    def add_arguments(self, parser):
        parser.add_argument("--hello", metavar="WHO")

    def keywords_of(self, args):
        return {"hello": args.hello}

    def recorded(self, keywords):
        return {"hello": keywords["hello"]} if keywords.get("hello") else {}

    PHASES

HELLO = Hello()
"""
PHASES = """def begin(self, job):
        seen.append(("before", job.keywords.get("hello"), job.recognized is not None))

    def finish(self, job, compiled):
        compiled.files["hello.txt"] = str(job.keywords.get("hello"))"""
POLICY = """
class Odd(Policy):
    phase, name = "PHASE", "odd"
    def __init__(self, job):
        self.job = job
    def propose(self, trials):
        BODY

class Nodes(Measure):
    def of(self, trial):
        return len(trial.result.plan.nodes)
    def text(self, figure):
        return f"{figure} nodes"

COUNTED = Nodes()

class Hello("""
POLICIES = """def policies(self, job, phase):
        return [Odd(job)] if phase == Odd.phase else []"""
REGISTER = 'registry.option("hello", "acme_plugin.hello:HELLO")'


@pytest.fixture
def model(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    return "m.onnx"


def with_policy(phase, body):
    """The module of an option with a policy of a phase, whose `propose` has this body."""
    text = POLICY.replace("PHASE", phase).replace("BODY", body)
    return OPTION.replace("class Hello(", text.lstrip()).replace("PHASES", POLICIES)


@pytest.fixture
def hello(install, plugin):
    """Install an option `hello` that acts in the given phases."""

    def put(phases=PHASES, source=OPTION, register=REGISTER, name="acme"):
        files = {f"{name}_plugin/__init__.py": plugin(register=register.replace("acme", name))}
        files[f"{name}_plugin/hello.py"] = source.replace("PHASES", phases)
        install(name, {name: f"{name}_plugin"}, files)

    return put


def test_an_argument_of_the_command_and_a_keyword_of_the_function(hello, model, capsys):
    hello()
    assert main(["compile", model, "--backend", "host", "--hello", "you", "-o", "out"]) == 0
    assert Path("out/hello.txt").read_text() == "you"
    assert dovetail.compile(model, "host", hello="me").files["hello.txt"] == "me"
    assert main(["compile", "--help"]) == 0
    assert "--hello WHO" in capsys.readouterr().out


ASKING = """
from dovetail.plugin import Option

class Quiet(Option):
    commands = ("compile", "plan")
    keywords = ("quiet",)

    def add_arguments(self, parser):
        parser.add_argument("--quiet", metavar="FILE")

    def keywords_of(self, args):
        return {"quiet": args.quiet} if args.quiet else {}

    def recorded(self, keywords):
        return {}

    def complete(self, args):
        if args.quiet:
            args.model, args.backend = Path(Path(args.quiet).read_text()), args.backend or ["cpu-bf16"]

    def requested(self, request, model, keywords):
        names = [node.name for node in model.graph if node.op_type == "Relu"]
        return replace(request, pins=(*request.pins, *(f"{name}=host" for name in names)))

HELLO = Quiet()
"""


@pytest.mark.parametrize("command", ["compile", "plan"])
def test_it_may_name_the_model_and_change_the_request(hello, model, command, capsys):
    hello(source="from dataclasses import replace\nfrom pathlib import Path\n" + ASKING)
    Path("config.txt").write_text(model)
    assert main([command, "--quiet", "config.txt", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    document = document.get("plan", document)
    assert {node["name"]: node["backend"] for node in document["nodes"]} == {"dense": "cpu-bf16", "relu": "host"}
    assert document["summary"]["request"]["pins"] == ["relu=host"]
    decided = dovetail.plan(model, "cpu-bf16", quiet="config.txt")
    assert {node.name: node.backend for node in decided.nodes} == {"dense": "cpu-bf16", "relu": "host"}


def test_a_command_without_a_model_says_so(model, capsys):
    assert main(["compile", "--backend", "host"]) == 2
    assert "no model is named" in capsys.readouterr().err


def test_what_it_records_is_in_the_request_the_plan_and_the_cache_key(hello, model):
    hello()
    compiled = dovetail.compile(model, "host", hello="you")
    assert compiled.plan.summary["options"] == {"hello": {"hello": "you"}}
    compiled.save("out")
    assert '"options": {"hello": {"hello": "you"}}' in Path("out/plan.yaml").read_text()
    dovetail.compile("out/model.onnx", "host", hello="you")
    dovetail.compile("out/model.onnx", "host", hello="somebody else")
    dovetail.compile("out/model.onnx", "host")
    from acme_plugin.hello import seen

    assert [recognized for _, _, recognized in seen] == [False, True, False, False]


def test_a_keyword_that_nobody_owns_has_near_misses(hello, model):
    hello()
    with pytest.raises(dovetail.UsageError, match=r"no keyword 'helo' \(did you mean 'hello'\?\)"):
        dovetail.compile(model, "host", helo="you")
    without = load_plugins(
        block=[
            "acme",
            "verify",
            "report",
            "quantize",
            "transforms",
            "bpu-int8",
            "cpu-int8",
            "tensorrt",
            "paddle",
            "runtime",
            "decoder",
        ]
    )
    with pytest.raises(dovetail.UsageError, match="no keyword 'min_snr'\n  no installed distribution adds any"):
        dovetail.compile(model, "host", min_snr=30, plugins=without)


def test_a_policy_proposes_nodes_high_or_low_or_another_request(hello, model):
    steps = [
        'Proposal("high", {"dense": ("high", "a test")}, measure=COUNTED)',
        'Proposal("another", {"relu": ("high", "a test")}, replace(self.job.request), COUNTED)',
    ]
    hello(
        source=with_policy(
            "raise",
            f"""seen.extend(str(trial.figure) for trial in trials)
        return {steps[0]} if not trials else {steps[1]} if len(trials) == 1 else None""",
        )
    )
    compiled = dovetail.compile(model, "cpu-bf16")
    assert (str(compiled.plan.find("a").precision), str(compiled.plan.find("y").precision)) == ("bfloat16", "float32")
    from acme_plugin.hello import seen

    assert seen == ["2", "2", "2"], "figures of earlier trials"
    assert compiled.plan.summary["trials"] == [
        {"policy": "odd", "why": "high", "figure": "2 nodes"},
        {"policy": "odd", "why": "another", "figure": "2 nodes"},
    ]


def test_a_search_may_be_written_as_a_generator(hello, model):
    source = with_policy("raise", "pass").replace("class Odd(Policy)", "class Odd(Stepwise)")
    source = source.replace("self.job = job\n", "super().__init__()\n").replace(
        "def propose(self, trials):\n        pass",
        """def steps(self):
        first = yield Proposal("as it is", measure=COUNTED)
        try:
            yield Proposal("refused", {"nobody": ("int3", "a test")}, replace(REQUEST, pins=("nobody=host",)))
        except Exception as error:
            why = str(error)
        remark = Remark("analysis", "", "acme", "seen", f"{first.figure}: {why}")
        return Outcome(trial=first, remarks=[remark])""",
    )
    hello(source=source.replace("REQUEST", "__import__('dovetail').passes.Request.of('cpu-bf16')"))
    compiled = dovetail.compile(model, "cpu-bf16")
    (why,) = [remark.why for remark in compiled.remarks if remark.rule == "seen"]
    assert why.startswith("2: ")
    assert "nobody" in why, "the error of a trial is raised where the generator waits for it"
    assert str(compiled.plan.find("a").precision) == "bfloat16", "the result of that trial"


def test_a_policy_that_proposes_the_same_again_is_ended(hello, model):
    hello(source=with_policy("raise", 'return Proposal(f"once more {len(trials)}", measure=COUNTED)'))
    compiled = dovetail.compile(model, "cpu-bf16")
    (remark,) = [remark for remark in compiled.remarks if remark.rule == "repeated-proposal"]
    assert remark.why == "odd proposed what it had proposed before (once more 1), and was ended"
    assert remark.advice == "report it to acme"
    assert len(compiled.plan.summary["trials"]) == 1


def test_an_error_of_a_trial_ends_the_compilation_unless_the_policy_bears_it(hello, model):
    body = """seen.extend(trial.error.message for trial in trials)
        return None if trials else Proposal("wrong", request=replace(self.job.request, pins=("nobody=host",)))"""
    hello(source=with_policy("raise", body))
    with pytest.raises(dovetail.DovetailError, match="nobody"):
        dovetail.compile(model, "cpu-bf16")


def test_what_is_observed_is_compiled_and_its_reasons_are_in_the_plan(hello, model):
    body = """return None

    def outcome(self, trials):
        found = replace(self.job.request, high=("dense",))
        return Outcome(found, remarks=[Remark("analysis", "", "acme", "seen", "dense needs it")])"""
    hello(source=with_policy("observe", body))
    compiled = dovetail.compile(model, "cpu-bf16")
    assert str(compiled.plan.find("a").precision) == "float32"
    assert [remark.why for remark in compiled.remarks if remark.rule == "seen"] == ["dense needs it"]


def test_another_request_is_compiled_until_the_result_fits(hello, model):
    body = """request = trials[-1].proposal.request or self.job.request
        low = [node.name for node in trials[-1].result.plan.nodes if str(node.precision) == "bfloat16"]
        return Proposal("more", request=replace(request, high=(*request.high, low[0]))) if low else None"""
    hello(source=with_policy("fit", body))
    compiled = dovetail.compile(model, "cpu-bf16")
    assert {str(node.precision) for node in compiled.plan.nodes} == {"float32"}


def test_a_result_is_kept_before_it_is_looked_at(hello, model, capsys):
    hello("""def judge(self, job, compiled):
        job.keep(compiled)
        from dovetail.plugin import ResultError
        raise ResultError(compiled, "it does not say hello", "greet it")""")
    assert main(["compile", model, "--backend", "host", "-o", "out", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == "it does not say hello"
    assert document["summary"].startswith("host 2")
    assert dovetail.load("out").run({"x": np.ones((2, 4), np.float32)})
    with pytest.raises(dovetail.ResultError) as caught:
        dovetail.compile(model, "host")
    assert caught.value.compiled.summary().startswith("host 2")


def test_keep_is_called_once_and_before_the_result_is_verified(model):
    kept = []
    dovetail.compile(model, "cpu-bf16", data="x.npz", keep=lambda compiled: kept.append(compiled.verification))
    assert kept == [None]


def test_phases_come_in_their_order_whatever_the_names(hello, model):
    """Of the searches for a result, only one counts: that of an option whose keyword is given, or else the first."""
    phases = """def begin(self, job):
        from contextlib import contextmanager
        from acme_plugin.hello import seen

        @contextmanager
        def scope():
            seen.append("begin NAME")
            yield
            seen.append("end NAME")

        return scope()

    def policies(self, job, phase):
        return [Chooses()] if phase == "raise" else []

    def publish(self, job, compiled):
        from acme_plugin.hello import seen
        seen.append("publish NAME")

    def judge(self, job, compiled):
        from acme_plugin.hello import seen
        seen.append("judge NAME")"""
    for name, owner in (("b", "brick"), ("a", "acme")):
        register = f'registry.option("{name}", "acme_plugin.hello:HELLO")'
        source = (
            OPTION.replace(
                "class Hello(",
                f"""class Chooses(Policy):
    phase, name = "raise", "{name}"
    def propose(self, trials):
        from acme_plugin.hello import seen
        if not trials:
            seen.append("choose {name}")
            return Proposal("a test")

class Hello(""",
            )
            .replace('("hello",)', f'("{owner}",)')
            .replace("--hello", f"--{owner}")
            .replace("args.hello", f"args.{owner}")
        )
        hello(phases.replace("NAME", name), source, register, owner)
    for given, first in (({}, "a"), ({"brick": 1}, "b")):
        dovetail.compile(model, "host", **given)
        from acme_plugin.hello import seen

        around = ["judge a", "judge b", "publish a", "publish b", "end b", "end a"]
        assert seen == ["begin a", "begin b", f"choose {first}", *around]
        seen.clear()


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("phase", ["begin", "policies", "finish", "judge", "publish"])
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("1 / 0", "option 'hello' of acme raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "option 'hello' of acme raised SystemExit: 3"),
    ],
)
def test_what_it_raises_is_named_with_its_distribution(hello, model, phase, body, says, capsys):
    hello(f"def {phase}(self, job, *more):\n        {body}")
    assert main(["compile", model, "--backend", "host"]) == 1
    error = capsys.readouterr().err
    assert f"error: {says}" in error
    assert "report it to acme" in error
    assert main(["compile", model, "--backend", "host", "--no-plugin", "acme"]) == 0


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (OPTION.replace("PHASES", "def begin(self, job):\n        return 3"), "no scope"),
        (OPTION.replace("PHASES", "def policies(self, job, phase):\n        return [3]"), "no policy"),
        (with_policy("raise", "return 3"), "no proposal"),
        (with_policy("fit", "return 3"), "no proposal"),
        (with_policy("observe", "return None\n    def outcome(self, trials): return 3"), "no outcome of a search"),
    ],
)
def test_what_it_returns_instead_is_named(hello, model, source, says, capsys):
    hello(source=source)
    assert main(["compile", model, "--backend", "host"]) == 1
    assert f"option 'hello' of acme gave int and {says}" in capsys.readouterr().err


def test_what_others_raise_inside_it_is_not_its_fault(hello, model):
    class Failing(dovetail.Pass):
        """Fail."""

        name, stage = "failing", "place"

        def run(self, model, ctx):
            raise KeyError("mine")

    hello()
    with pytest.raises(Exception, match="failing") as caught:
        dovetail.compile(model, "host", passes=[Failing()])
    assert "acme" not in str(caught.value)


def changed(old, new):
    return OPTION.replace(old, new)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nothing_of_this_name", "cannot be loaded from acme_plugin.hello:HELLO: ModuleNotFoundError"),
        ("HELLO = 3", "option 'hello' of acme is int, which is no Option"),
        (changed("HELLO = Hello()", "HELLO = Hello"), "option 'hello' of acme is a class"),
        (changed("PHASES", "def compile(self, job, proceed): pass"), "has a method 'compile', instead of which there"),
        (changed("PHASES", "def choose(self, job, compile): pass"), "has a method 'choose', instead of which there"),
        (changed('("compile",)', '"compile"'), "option 'hello' of acme: 'commands' is no tuple"),
        (
            changed('("compile",)', '("explain",)'),
            "adds to 'explain', and only compile, plan, bisect, check can",
        ),
        (changed('keywords = ("hello",)', 'keywords = ("data",)'), "owns the keyword 'data', which dovetail-core has"),
    ],
)
def test_one_that_breaks_the_contract_is_left_out_with_a_warning(hello, model, source, says, capsys):
    hello(source=source)
    assert main(["compile", model, "--backend", "host", "-o", "out"]) == 0
    error = capsys.readouterr().err
    assert says in error
    assert error.count("warning: option 'hello' of acme") == error.count("it is left out") == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dovetail.compile(model, "host")
    assert says in "".join(str(warning.message) for warning in caught)


def test_an_argument_that_is_taken_leaves_the_option_out_of_the_command(hello, model, capsys):
    hello(source=changed("--hello", "--strategy"))
    assert main(["compile", model, "--backend", "host"]) == 0
    error = capsys.readouterr().err
    says = "option 'hello' of acme raised ArgumentError: argument --strategy: conflicting option string"
    assert error.count(says) == 1


def test_a_keyword_that_is_not_its_own_is_an_error(hello, model, capsys):
    hello(source=changed('return {"hello": args.hello}', 'return {"data": args.hello}'))
    assert main(["compile", model, "--backend", "host"]) == 1
    assert "option 'hello' of acme gives the keyword 'data', which is not its own" in capsys.readouterr().err


def test_a_keyword_that_two_own_is_refused_to_the_second(hello, model, capsys):
    hello()
    source = OPTION.replace("--hello", "--other").replace("args.hello", "args.other")
    hello(source=source, register='registry.option("zebra", "acme_plugin.hello:HELLO")', name="brick")
    assert main(["compile", model, "--backend", "host"]) == 0
    assert "option 'zebra' of brick owns the keyword 'hello', which acme has already" in capsys.readouterr().err


def test_what_no_file_can_hold_is_not_recorded(hello, model):
    hello(source=changed('{"hello": keywords["hello"]}', '{"hello": object()}'))
    with pytest.raises(dovetail.DovetailError, match="option 'hello' of acme records what no file can hold"):
        dovetail.compile(model, "host", hello="you")


def test_without_anything_that_verifies_data_is_only_measured_on(model, capsys):
    arguments = ["compile", model, "--backend", "cpu-bf16", "--data", "x.npz", "-o", "out"]
    assert main([*arguments, "--no-plugin", "verify"]) == 0
    said = capsys.readouterr().out
    assert said.count("the result was not verified: no installed distribution") == 1
    assert "SNR" not in said
    assert main(arguments) == 0
    assert "no installed distribution" not in capsys.readouterr().out


def test_an_argument_of_a_plugin_that_is_left_out_is_not_taken_for_another(model, capsys):
    assert main(["compile", model, "--backend", "host", "--verify", "--no-plugin", "verify"]) == 2
    assert "unrecognized arguments: --verify" in capsys.readouterr().err


def test_the_keywords_of_core_are_the_parameters_of_its_function():
    parameters = inspect.signature(dovetail.compile).parameters.values()
    assert {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} == COMPILE_KEYWORDS


def test_an_option_needs_its_arguments_alone(hello, model, capsys):
    """Whatever else an option may do has a default that does nothing."""
    hello(
        source="""
from dovetail.plugin import Option

class Idle(Option):
    commands, keywords = ("compile", "plan"), ("idle",)

    def add_arguments(self, parser):
        parser.add_argument("--idle", action="store_true")

HELLO = Idle()
"""
    )
    assert main(["compile", model, "--backend", "host", "--idle", "-o", "out"]) == 0
    assert main(["plan", model, "--backend", "host", "--idle"]) == 0
    assert dovetail.plan(model, "host", idle=True).nodes
