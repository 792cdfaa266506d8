"""A kernel launch as a file: its code, its arguments and the memory that it had, to run it again exactly."""
