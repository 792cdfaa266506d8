"""What can be tried, one file per kind of change: `changes(situation)` yields each, or why it cannot be tried here."""
