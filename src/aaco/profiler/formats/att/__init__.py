"""AMD thread traces (ATT): instructions, waves and their code."""
