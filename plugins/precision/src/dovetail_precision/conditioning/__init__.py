"""Conditioning: where rounding costs more digits than a low type has, from structure, constants and data."""
