"""What limits a session and its kernels: the time budget that rules judge, kernel classes, what to do next."""
