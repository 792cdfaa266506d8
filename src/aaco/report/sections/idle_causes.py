"""The causes of idle time of a device, as they are called on screen: a title, and what it means."""

CAUSES = {
    "host_wait": ("Host came late", "the host was busy with something else"),
    "sync_wait": ("Host synchronised", "the host had been waiting for the device"),
    "copy_wait": ("Held by a copy", "the host or the stream was held by a copy"),
    "noise": ("Noise", "the launching thread was kept off its CPU"),
    "kernel_wait": ("Kernel to kernel", "launched in time: the way from one kernel to the next"),
    "launch": ("Launch latency", "launched, but too late for the launch latency"),
    "throttled": ("Throttled", "the clock was held down"),
    "unknown": ("Unknown", ""),
}
