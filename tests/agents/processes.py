"""Looking at processes that tests started."""

import os

import psutil


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_alive_or_ours(pid: int) -> bool:
    """Whether it runs, or is a zombie that we ought to have collected.

    The zombie of an orphan belongs to process 1, which collects it at some later time.
    """
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid()
    except psutil.NoSuchProcess:
        return False
