"""Live readings of AMD and NVIDIA devices: sensors, clocks, power, and who uses them."""
