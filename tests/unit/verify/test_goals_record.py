"""Goals are one record: keywords of functions and options of commands are its fields."""

import argparse
import dataclasses
import inspect

import dovetail
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.arguments import GOALS, add_goals

FIELDS = [item.name for item in dataclasses.fields(Goals)]


def test_names_are_those_of_the_record():
    assert list(GOALS) == FIELDS


def test_every_goal_is_an_option():
    parser = argparse.ArgumentParser()
    add_goals(parser)
    assert [name for name in vars(parser.parse_args([])) if name in FIELDS] == FIELDS


def test_every_goal_is_a_keyword_of_what_takes_goals():
    for function in (dovetail.verify, dovetail.bisect, dovetail.reduce, dovetail.tune):
        keywords = inspect.signature(function).parameters
        assert [name for name in keywords if name in FIELDS] == FIELDS, function
