"""Plans: placements, remarks, selectors, and their form on disk."""
