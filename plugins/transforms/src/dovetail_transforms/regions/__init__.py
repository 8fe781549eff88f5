"""The regions of a placed model: found, taken out as models of their own, and put back."""
