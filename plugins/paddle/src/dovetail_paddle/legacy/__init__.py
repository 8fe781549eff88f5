"""Legacy programs (`.pdmodel`): their dataclasses, reader and text."""
