"""bfloat16 on CPUs through OpenVINO."""
