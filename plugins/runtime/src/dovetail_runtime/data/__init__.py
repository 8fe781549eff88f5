"""Input data: files and arrays, batches that match a model, digests, and outputs as arrays."""
