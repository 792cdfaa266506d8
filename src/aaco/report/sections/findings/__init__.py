"""What reports show of each finding: one file per view. Each registers itself with `finding_views.finding_view`."""
