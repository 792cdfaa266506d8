"""The metrics, one file per subject; importing a file registers what it declares."""
