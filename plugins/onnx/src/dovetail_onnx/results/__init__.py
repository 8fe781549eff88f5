"""Results in folders and plans in files: saved atomically, loaded, and recognized when requested again.

`store` is the registered entry point. `manifest` lists the files of a result, `writing` stages a new one, `committing`
atomically replaces the old one, `reading` finds the result in a folder, `cache_key` identifies requests, and
`plan_file` is the file format of plans.
"""
