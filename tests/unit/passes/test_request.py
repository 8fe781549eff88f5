import dataclasses
import inspect
import json
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice, PinOrigin, Request
from dovetail_commands.request import CHOICES


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("cpu-bf16", "cpu-bf16", {}),
        ("bpu-int8:march=bayes,cores=2", "bpu-int8", {"march": "bayes", "cores": "2"}),
        ("tensorrt:version=10.10, shape=x:1x3", "tensorrt", {"version": "10.10", "shape": "x:1x3"}),
    ],
)
def test_backends_are_read(text, name, options):
    choice = BackendChoice.parse(text)
    assert choice == BackendChoice(name, options)
    assert BackendChoice.parse(str(choice)) == choice
    assert BackendChoice.parse(choice) is choice


@pytest.mark.parametrize("text", ["", ":a=b", "a b", "a:", "a:b", "a:b=", "a:=b", "a:b=c,", "a:b=1,b=2"])
def test_other_texts_are_usage_errors(text):
    with pytest.raises(UsageError):
        BackendChoice.parse(text)


def test_requests_survive_as_plain_data():
    request = Request.of("a:x=1", "b", solver="min-cut", pins=("n=a/int8",), data="d.npz", options={"k": 1})
    assert Request.from_dict(request.as_dict()) == request
    origin = PinOrigin("f.yaml:3, run_on_bpu", may_be_declined=True, if_declined="the tool warns")
    asked = Request(pins=("n=a",), pin_origins={"n=a": origin, "m=a": PinOrigin("f.yaml:4")})
    assert Request.from_dict(json.loads(json.dumps(asked.as_dict()))) == asked
    assert Request(data=Path("d.npz")).as_dict()["data"] == "d.npz"
    assert Request(data={"x": np.zeros(1)}).as_dict()["data"] is None


def test_a_field_of_a_request_is_a_keyword_and_an_option():
    """Requests are the record of what can be asked for; functions and commands offer their fields by name."""
    defaults = {item.name: item.default for item in dataclasses.fields(Request)}
    own = {"options", "pin_origins"}  # what options of plugins ask for
    offered = {one.field for one in CHOICES}
    assert offered == defaults.keys() - own - {"plan"}
    for function, more in ((dovetail.plan, set()), (dovetail.compile, {"plan"})):
        keywords = inspect.signature(function).parameters
        assert offered | more == keywords.keys() & defaults.keys() - {"options"}
        for name in (offered | more) - {"backends"}:
            assert keywords[name].default == defaults[name], name
