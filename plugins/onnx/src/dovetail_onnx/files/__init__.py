"""Files: whole or as they were (`writing`, `ownership`), read within limits (`reading`, `parsing`), and digests."""
