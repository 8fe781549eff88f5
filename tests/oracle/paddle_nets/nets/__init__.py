"""The nets, by family; each module registers its own with `net`."""
