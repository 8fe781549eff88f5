"""Examples run: those of README.md and of the pages in docs/, and the distributions tests/example_*."""
