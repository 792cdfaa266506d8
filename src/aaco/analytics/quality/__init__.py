"""How far a measurement can be trusted: noise, drift, temperature, other processes."""
