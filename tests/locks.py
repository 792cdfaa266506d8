"""Whether a folder is locked now: that says for certain what a race of two processes says only now and then."""

import fcntl
import os
from pathlib import Path


def is_locked(folder: Path) -> bool:
    """Return whether someone holds the folder's lock; it may be this process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
