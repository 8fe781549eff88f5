"""Rules of raising, by theme; each is a function that a row of the table names."""
