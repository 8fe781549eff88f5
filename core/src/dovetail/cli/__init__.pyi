# What `dovetail.cli` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.cli.common import (
    no_arguments as no_arguments,
    PlainCommand as PlainCommand,
    columns as columns,
    existing as existing,
    note as note,
    option_keywords as option_keywords,
    output as output,
    plugins_of as plugins_of,
    print_json as print_json,
    say as say,
)
from dovetail.cli.plugins import broken_lines as broken_lines
from dovetail.cli.option_groups import (
    ACCURACY as ACCURACY,
    DEBUGGING as DEBUGGING,
    DECISIONS as DECISIONS,
    ENGINES as ENGINES,
    INPUTS as INPUTS,
    LANGUAGE as LANGUAGE,
    WRITTEN as WRITTEN,
    CommandParser as CommandParser,
    option_group as option_group,
    options_of as options_of,
)
