"""File access: atomic writing (`writing`, `ownership`), bounded reading (`reading`, `parsing`), and digests."""
