"""Files that are whole or as they were (`writing`), their digests, and who still writes them (`ownership`)."""
