"""What a check found, and what to do about it."""

from enum import Enum

from openclaw_a2a.model.message import JsonStruct


class Verdict(Enum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"
    SKIPPED = "skipped"


class Finding(JsonStruct, frozen=True, omit_defaults=False):
    """What one check found; `fix` is the next step when there is one."""

    group: str
    check: str
    verdict: Verdict
    detail: str
    fix: str = ""
