"""What a run records on a device: traced and counted passes, telemetry, cooldown."""
