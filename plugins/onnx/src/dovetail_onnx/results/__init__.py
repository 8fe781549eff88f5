"""Results in folders and plans in files: saved as a whole, loaded, and recognized when the same is asked again.

`store` is what is registered. `manifest` says what belongs to a result, `writing` puts a new one into a folder,
`committing` is the moment in which it takes the place of the old one, `reading` finds the result that a folder holds,
`cache key` tells requests apart, and `plan_file` is the form of plans.
"""
