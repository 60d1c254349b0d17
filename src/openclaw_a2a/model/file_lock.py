"""File locks between processes, where the system has them (Linux, macOS).

A lock is released when its file is closed, so a killed process leaves none behind.
"""

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

CAN_LOCK_FILES = fcntl is not None


def lock_file(descriptor: int, *, is_shared: bool = False) -> None:
    """Wait for the lock of an open file. Returns at once where there are no file locks."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)


def try_lock_file(descriptor: int, *, is_shared: bool = False) -> bool:
    """Take the lock of an open file if it is free; True where there are no file locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock_file(descriptor: int) -> None:
    """Release the lock, and keep the file open."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
