"""The operator's token: a file in the data folder that only the gateway's own user can read."""

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from openclaw_a2a.auth.peers import Credentials, read_bearer_token
from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.request_origin import (
    ClientRequest,
    OwnAddresses,
    is_loopback_client,
    is_proxied,
)
from openclaw_a2a.auth.tokens import token_digest
from openclaw_a2a.model.errors import NotAllowed, Unauthenticated
from openclaw_a2a.model.session_keys import OPERATOR_NAME
from openclaw_a2a.settings import write_private_file

ADMIN_TOKEN_FILE = "operator.token"  # noqa: S105 - the name of a file
_BYTES = 32
_MIN_LENGTH = 40
_MAX_LENGTH = 1024


class AdminAuthenticator:
    """Authenticates the operator: on this machine, by the admin token or a token for `admin`."""

    def __init__(
        self,
        token: str | None,
        *,
        own: OwnAddresses | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._digest = None if token is None else token_digest(token.encode())
        self._own = own or OwnAddresses()
        self._credentials = credentials

    def identify(self, request: ClientRequest) -> str:
        """The name of the operator, or of the owner of a token for `admin`.

        Raises: NotAllowed, Unauthenticated, CorruptRecord (the token file).
        """
        # Checked before the token: clients on other machines cannot guess tokens.
        if not is_loopback_client(request) or is_proxied(request):
            raise NotAllowed("the operator's pages answer the gateway's own machine only")
        self._own.check(request)
        if self._digest is None:
            raise NotAllowed("the operator's pages are shut; the log of the gateway says why")
        token = read_bearer_token(request)
        if token is not None and hmac.compare_digest(token_digest(token), self._digest):
            return OPERATOR_NAME
        text = "this is not the operator's token; it is in the data folder of the gateway"
        if self._credentials is None:
            raise Unauthenticated(text)
        try:
            principal = self._credentials.authenticate(request)
        except Unauthenticated as error:
            raise Unauthenticated(text, has_credentials=error.has_credentials) from None
        principal.check_scope(Scope.ADMIN)
        return principal.name

    def check(self, request: ClientRequest) -> None:
        """Check the credentials of an identified request again. Raises: as `identify`."""
        self.identify(request)


def ensure_admin_token(folder: Path) -> str:
    """The token in the folder; a new one if another user could have read the one there is.

    Raises: OSError (the folder cannot be written to).
    """
    path = folder / ADMIN_TOKEN_FILE
    # Any problem with the file (truncated, readable by others) is solved by a new token.
    with suppress(OSError, ValueError):
        if _is_private(path):
            return read_admin_token(folder)
    token = secrets.token_urlsafe(_BYTES)
    # Not synced: a file truncated by a crash holds no token, and the next start writes a new one.
    write_private_file(path, f"{token}\n".encode("ascii"))
    return token


def read_admin_token(folder: Path) -> str:
    """The token in the folder.

    Raises: OSError (there is none, or it cannot be read), ValueError (the file holds no token).
    """
    with (folder / ADMIN_TOKEN_FILE).open("rb") as file:
        token = file.read(_MAX_LENGTH).decode("ascii").strip()
    if len(token) < _MIN_LENGTH or not token.isprintable():
        raise ValueError("the file holds no token")
    return token


def _is_private(path: Path) -> bool:
    # Not through a link: another user could change the file behind it.
    found = path.lstat()
    is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not stat.S_IMODE(found.st_mode) & 0o077
