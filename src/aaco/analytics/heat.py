"""From where on a device is warm, and which reasons for its clock are throttling."""

WARM_C = 75.0  # where device_temperature_max_c stops to be fine
# By the names NVML gives them; an idle device and a clock that was asked for are no throttling.
THROTTLING = ("sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
