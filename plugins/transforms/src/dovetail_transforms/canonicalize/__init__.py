"""Passes that bring a model to normal form: one opset, every node named, every value typed, constants folded."""
