# What `dovetail.plugin.loading` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.plugin.engine import (
    make_engine as make_engine,
    CURRENT_RECORDER as CURRENT_RECORDER,
)
from dovetail.plugin.emitter import (
    TOOL_DEADLINE as TOOL_DEADLINE,
    TOOL_PROGRESS as TOOL_PROGRESS,
    TRIAL as TRIAL,
    searching as searching,
)
from dovetail.plugin.loading.backend_files import (
    format_of as format_of,
    named_format_of as named_format_of,
    names_file as names_file,
    use_file as use_file,
)
from dovetail.plugin.loading.backends import (
    asking as asking,
    check_installed as check_installed,
    load_backend_file as load_backend_file,
    load_chosen as load_chosen,
)
from dovetail.plugin.loading.contracts import (
    class_of as class_of,
    derived as derived,
    made as made,
    overrides as overrides,
)
from dovetail.plugin.loading.discovery import discover as discover
from dovetail.plugin.loading.frontends import (
    check_regular as check_regular,
    open_any as open_any,
    open_declared as open_declared,
    open_file as open_file,
    open_object as open_object,
    write_file as write_file,
)
from dovetail.plugin.loading.isolation import (
    calling as calling,
    described as described,
    foreign_output as foreign_output,
)
from dovetail.plugin.loading.output import own_output as own_output
from dovetail.plugin.loading.registry import (
    Registration as Registration,
    Table as Table,
    problem_of as problem_of,
)
from dovetail.plugin.loading.stores import store_for as store_for
from dovetail.plugin.commands import load_command as load_command
from dovetail.plugin.options import blaming as blaming, installed_options as installed_options
from dovetail.plugin.artifacts import (
    FUNCTIONS as FUNCTIONS,
    PROGRAM as PROGRAM,
    SHARED as SHARED,
    ArtifactFolder as ArtifactFolder,
    artifact_of as artifact_of,
    nodes_of as nodes_of,
    stands_for_region as stands_for_region,
)
from dovetail.plugin.compiled import NO_NODES as NO_NODES, NOTHING_LEFT as NOTHING_LEFT
from dovetail.plugin.invariant import invariants_of as invariants_of
from dovetail.plugin.search import proposals as proposals
