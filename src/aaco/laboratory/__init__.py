"""Makes the machine quiet, measures how quiet it is, and puts everything back."""
