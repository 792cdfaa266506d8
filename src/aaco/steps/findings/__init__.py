"""What is found in the tables of a session: a file for each finding, declared with @finding (core/finding.py)."""
