"""Live sources: one file per thing that can be watched."""
