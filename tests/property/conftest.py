"""How many examples: few, so that a run stays short, many with DOVETAIL_SLOW=1; and plugins with example backends."""

import os
import sys

import pytest
from hypothesis import HealthCheck, Phase, settings

CHECKS = list(HealthCheck)
FIND = (Phase.explicit, Phase.reuse, Phase.generate)
settings.register_profile(
    "short", max_examples=12, deadline=None, derandomize=True, phases=FIND, suppress_health_check=CHECKS
)
settings.register_profile(
    "long", max_examples=1000, deadline=None, phases=(*FIND, Phase.shrink), suppress_health_check=CHECKS
)
settings.load_profile("long" if os.environ.get("DOVETAIL_SLOW") == "1" else "short")


@pytest.fixture(scope="module")
def plugins():
    from .grown_trial import EXAMPLES, plugins_with_examples

    path = list(sys.path)
    yield plugins_with_examples()
    sys.path[:] = path
    for module, _ in EXAMPLES.values():
        for name in [name for name in sys.modules if name.partition(".")[0] == module]:
            del sys.modules[name]
