"""The regions of a placed model: formed, extracted as models, and put back."""
