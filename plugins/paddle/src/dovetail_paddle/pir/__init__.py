"""Programs of Paddle 3 (`.json`), which consist of `pd_op` operators."""
