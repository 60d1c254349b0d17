"""The mark a program and all it starts inherit: whose they are, and which gateway began them."""

import hashlib
import os
import re
import secrets

from openclaw_a2a.agents.process_tree import read_environment, read_process

MARK_VARIABLE = "A2A_PROCESS_MARK"
"""Inherited by everything a program starts, so that all of it can be found again."""


def new_mark(name: str) -> str:
    """A mark no other program has, by which a later gateway can find what is called `name`."""
    gateway = read_process(os.getpid())
    started = gateway.started if gateway is not None else 0
    return f"{_digest(name)}-{os.getpid()}-{started}-{secrets.token_hex(8)}"


def is_left_behind(pid: int, name: str) -> bool:
    """True for a process that belongs to `name` and whose gateway is gone."""
    pattern = rf"{_digest(name)}-(\d+)-(\d+)-".encode()
    found = re.findall(pattern, read_environment(pid))
    return bool(found) and not any(_runs(int(one), int(started)) for one, started in found)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _runs(pid: int, started: int) -> bool:
    process = read_process(pid)
    return process is not None and process.started == started and not process.is_zombie
