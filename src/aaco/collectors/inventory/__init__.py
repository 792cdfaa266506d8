"""What this machine is: its processors, devices, settings and software."""
