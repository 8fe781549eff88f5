"""What `bench/gpu.py` measures, and how its wheels come to a machine without network."""
