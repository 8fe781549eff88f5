"""Passes that choose precisions and join them."""
