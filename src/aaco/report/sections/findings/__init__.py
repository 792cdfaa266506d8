"""What reports show of each finding: one file per view, named for its slot."""
