"""Tokens for callers of tools: made once, kept hashed in a file, revocable at any time."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, Problem

FILE_NAME = "tool-tokens.json"
PREFIX = "oca_tool_"
OPERATOR_NAME = "operator"
"""The name of the person who runs the gateway, whose token is not among these."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_BYTES = 32


class TokenKind(Enum):
    """Whom the holder of a token speaks for: itself, or the agents of the host it is part of."""

    TOOL = "tool"
    HOST = "host"


class ToolToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token as it is kept: whose it is and what its text hashes to."""

    name: str
    sha256: str
    created_at: datetime
    kind: TokenKind = TokenKind.TOOL


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[ToolToken, ...] = ()


class ToolTokens:
    """The tokens in a file. Every look reads the file again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._tokens: tuple[ToolToken, ...] = ()

    def listed(self) -> tuple[ToolToken, ...]:
        """All tokens, oldest first. Raises: CorruptRecord."""
        self._refresh()
        return self._tokens

    def create(self, name: str, kind: TokenKind = TokenKind.TOOL) -> str:
        """Make a token; its text is told only now. A name that has one gets a second.

        Raises: InvalidParams, CorruptRecord, OSError (the folder cannot be written to).
        """
        if not _NAME.fullmatch(name) or name == OPERATOR_NAME:
            reason = "a token's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
            if name == OPERATOR_NAME:
                reason = f"{name} is the person who runs the gateway; take another name"
            raise InvalidParams(f"name: {reason}", problems=(Problem("name", reason),))
        text = PREFIX + secrets.token_urlsafe(_BYTES)
        token = ToolToken(name, _digest(text.encode()), datetime.now(UTC), kind)
        self._write((*self.listed(), token))
        return text

    def revoke(self, name: str) -> int:
        """Forget all tokens of this name; how many there were."""
        kept = tuple(token for token in self.listed() if token.name != name)
        count = len(self._tokens) - len(kept)
        if count:
            self._write(kept)
        return count

    def identify(self, text: bytes) -> ToolToken | None:
        """The token with this text; None when there is none. Raises: CorruptRecord."""
        digest, found = _digest(text), None
        for token in self.listed():
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._tokens = _read(self._path)
            self._seen = seen

    def _write(self, tokens: tuple[ToolToken, ...]) -> None:
        """Replace the file as a whole: whoever reads sees the old one or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        body = msgspec.json.format(msgspec.json.encode(_File(tokens)), indent=2)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".tokens-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(body + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
            raise
        self._tokens, self._seen = tokens, None


def _read(path: Path) -> tuple[ToolToken, ...]:
    """Raises CorruptRecord when the file is broken: nobody is let in by a guess."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).tokens
    except msgspec.MsgspecError as error:
        reason = f"{path} is no list of tokens ({error}); restore it or delete it"
        raise CorruptRecord(reason) from error


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
