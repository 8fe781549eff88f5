"""Programs of Paddle 3 (`.json`), which hold `pd_op` operators already."""
