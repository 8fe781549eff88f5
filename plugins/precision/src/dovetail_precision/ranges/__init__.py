"""Value ranges: from constants by interval arithmetic, and from data by measuring."""
