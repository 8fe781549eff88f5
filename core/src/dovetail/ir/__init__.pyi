# What `dovetail.ir` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.ir.editing import insert_on_edge as insert_on_edge, replace_uses_except as replace_uses_except
from dovetail.ir.model import Model as Model
from dovetail.ir.types import promote as promote
from dovetail.ir.verifier import verify_model as verify_model
