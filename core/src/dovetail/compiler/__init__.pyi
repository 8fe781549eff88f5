# What `dovetail.compiler` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.compiler.driver import Driver as Driver
from dovetail.compiler.option_chain import OptionChain as OptionChain
from dovetail.compiler.planned import plan_of as plan_of
