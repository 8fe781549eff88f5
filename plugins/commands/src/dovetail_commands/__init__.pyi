# What backends and other plugins may use of `dovetail_commands`, each name with its module.

from dovetail.plugin import Registry
from dovetail_commands.engine_environments import (
    add_engine_env as add_engine_env,
    environment_of as environment_of,
    variable_of as variable_of,
)
from dovetail_commands.instrumentation import timing_lines as timing_lines

dovetail_api: int

def register(registry: Registry) -> None: ...
