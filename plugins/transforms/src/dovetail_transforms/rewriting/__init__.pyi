# What `dovetail_transforms.rewriting` exports, each name with its module.

from dovetail_transforms.rewriting.commuting import number_of as number_of
from dovetail_transforms.rewriting.patterns import Match as Match
from dovetail_transforms.rewriting.rewriting import (
    NotRewritten as NotRewritten,
    Replacement as Replacement,
    Rewrite as Rewrite,
    RewriteOutcome as RewriteOutcome,
    matched as matched,
    rewrite_model as rewrite_model,
    rewrite_node as rewrite_node,
)
