"""Input data: files and arrays in every form, batches that fit a model, digests, and outputs as arrays."""
