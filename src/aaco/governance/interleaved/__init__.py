"""Two sides measured in turns: their statistics and their verdict."""
