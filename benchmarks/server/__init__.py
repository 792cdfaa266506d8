"""What the server over sessions is worth: its list of 10,000, and 200 readers at once."""
