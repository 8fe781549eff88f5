"""One test per promise of the README, and what users meet on the way."""
