"""The folder that compiling writes: one thing, although it is several files.

`manifest` says what belongs to a result, `writing` puts a new one into a folder, `committing` is the moment in which it
takes the place of the old one, `reading` finds the result that a folder holds.
"""
