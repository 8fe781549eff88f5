"""Data files with random faults, beside backend files: policies, costs, operators and lists of conformance.

Each is read, or refused with file and line. A sample by default, 400 of each with DOVETAIL_SLOW=1.
"""

import os
import re

import pytest
from dovetail.errors import DovetailError
from dovetail_kernels.operator_files.building import check_operators
from dovetail_precision.costs import load_cost_table
from dovetail_schemas.policy_file import load_policies
from dovetail_schemas.yaml_source import load_tree
from dovetail_testing.list_files import read_lists

from .mutants import mutant

SEEDS = range(400 if os.environ.get("DOVETAIL_SLOW") == "1" else 60)
FILES = {
    "policies": "schemas/src/dovetail_schemas/policies/fp16.yaml",
    "costs": "schemas/src/dovetail_schemas/costs/default.yaml",
    "operators": "tests/filecheck/acme.ops.yaml",
    "conformance": "backends/cpu_bf16/src/dovetail_cpu_bf16/conformance.yaml",
}
READERS = {
    "policies": lambda path: load_policies(path, lambda source, name: None),
    "costs": load_cost_table,
    "operators": check_operators,
    "conformance": read_lists,
}


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_read_or_refused_with_file_and_line(kind, repository, tmp_path):
    tree, path, refused = load_tree(repository / FILES[kind]), tmp_path / "damaged.yaml", 0
    for seed in SEEDS:
        path.write_text(mutant(tree, seed), encoding="utf-8")
        try:
            READERS[kind](path)
        except DovetailError as error:
            assert re.search(r"damaged\.yaml(:\d+)?: \S", str(error)), f"seed {seed}: {error}"
            refused += 1
    assert 0 < refused < len(SEEDS)
