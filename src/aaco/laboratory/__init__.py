"""Makes the machine quiet, says how quiet it is, and puts everything back."""
