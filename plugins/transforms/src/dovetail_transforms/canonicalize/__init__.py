"""Passes that normalize a model: one opset, all nodes named, all values typed, constants folded."""
