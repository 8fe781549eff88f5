"""What several tests of the adapters use."""

import pytest
from dovetail_adapters.result_cache import ResultCache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of results for this test alone."""
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", str(tmp_path / "cache"))
    return ResultCache.of_user()
