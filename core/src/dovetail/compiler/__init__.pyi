# What `dovetail.compiler` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.compiler.artifacts import (
    ArtifactFolder as ArtifactFolder,
    FUNCTIONS as FUNCTIONS,
    artifact_of as artifact_of,
    nodes_of as nodes_of,
    stands_for_region as stands_for_region,
)
from dovetail.compiler.compiled import NOTHING_LEFT as NOTHING_LEFT, CompiledModel as CompiledModel
from dovetail.compiler.driver import Driver as Driver
from dovetail.compiler.frontends import (
    check_regular as check_regular,
    open_any as open_any,
    open_declared as open_declared,
    open_file as open_file,
    open_object as open_object,
)
from dovetail.compiler.option_chain import OptionChain as OptionChain
from dovetail.compiler.running import input_data as input_data
from dovetail.compiler.stores import check_store as check_store
from dovetail.compiler.writing import write_file as write_file
from dovetail.plugin.backend_files import format_of as format_of
from dovetail.plugin.contracts import class_of as class_of, derived as derived, made as made, overrides as overrides
from dovetail.plugin.engine import (
    evaluator_of as evaluator_of,
    make_engine as make_engine,
    record_spans as record_spans,
)
from dovetail.plugin.isolation import calling as calling, described as described, foreign_output as foreign_output
from dovetail.plugin.options import blaming as blaming, installed_options as installed_options
from dovetail.plugin.output import own_output as own_output
from dovetail.plugin.registry import DATA_KINDS as DATA_KINDS, Table as Table
from dovetail.plugin.backend_files import names_file as names_file, use_file as use_file
from dovetail.plugin.registry import Entry as Entry
