"""The vendor's kit: distributions of new backends, and checks of installed ones."""
