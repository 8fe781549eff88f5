# What `dovetail.compiler` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.compiler.driver import Driver as Driver
from dovetail.compiler.option_phases import OptionPhases as OptionPhases
from dovetail.compiler.planned import plan_of as plan_of
from dovetail.compiler.search import FoundPolicy as FoundPolicy, Search as Search
