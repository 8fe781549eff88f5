"""Translation of legacy programs into `pd_op` graphs."""
