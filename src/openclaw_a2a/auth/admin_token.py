"""The operator's token: a file in the data folder that only the gateway's own user can read."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

ADMIN_TOKEN_FILE = "operator.token"  # noqa: S105 - a name, not a secret
_BYTES = 32
_SHORTEST = 40
_MOST = 1024


def ensure_admin_token(folder: Path) -> str:
    """The token in the folder; a new one when there is none that nobody else could have read.

    Raises: OSError (the folder cannot be written to).
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / ADMIN_TOKEN_FILE
    with suppress(OSError, ValueError):
        if _is_private(path):
            return read_admin_token(folder)
    return _write(path)


def read_admin_token(folder: Path) -> str:
    """The token in the folder.

    Raises: OSError (there is none, or it is somebody else's), ValueError (it holds no token).
    """
    with (folder / ADMIN_TOKEN_FILE).open("rb") as file:
        token = file.read(_MOST).decode("ascii").strip()
    if len(token) < _SHORTEST or not token.isprintable():
        raise ValueError("the file holds no token")
    return token


def _is_private(path: Path) -> bool:
    found = path.lstat()
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return is_ours and not stat.S_IMODE(found.st_mode) & 0o077


def _write(path: Path) -> str:
    """Put a new token in place at once, so that nobody ever reads half of one."""
    token = secrets.token_urlsafe(_BYTES)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return token
