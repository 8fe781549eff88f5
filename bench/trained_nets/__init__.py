"""Trained nets that ship in wheels, real inputs for them, and the candidates that `trained.py` compares on them."""
