"""Live sources: the devices, the host, and what this machine is."""
