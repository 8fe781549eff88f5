"""Conditioning: find nodes where rounding to a low type loses most digits, from structure, constants and data."""
