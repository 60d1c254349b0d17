"""The device identity: an Ed25519 key with which a gateway that is not on loopback knows us."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from openclaw_a2a.model.errors import AgentUnavailable

_MOST_BYTES = 64 * 1024


def prove(key_path: str, claims: Sequence[str]) -> dict[str, str]:
    """The device's id, its public key, and its signature over the claims.

    `cryptography` is imported here, because only those who use a device key need it.
    Raises: AgentUnavailable when the key cannot be used.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise AgentUnavailable(
            "The option deviceKey needs the package cryptography; pip install cryptography."
        ) from None
    private = None
    try:
        with Path(key_path).expanduser().open("rb") as stream:
            private = load_pem_private_key(stream.read(_MOST_BYTES), password=None)
    except OSError as error:
        raise _unusable(key_path, error.strerror or str(error)) from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise _unusable(key_path, str(error)) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise _unusable(key_path, "it is no Ed25519 key")
    public = private.public_key().public_bytes_raw()
    device_id = hashlib.sha256(public).hexdigest()
    signature = private.sign("|".join(("v3", device_id, *claims)).encode())
    return {"id": device_id, "publicKey": _base64url(public), "signature": _base64url(signature)}


def _unusable(key_path: str, reason: str) -> AgentUnavailable:
    return AgentUnavailable(
        f"The device key {key_path} cannot be used: {reason};"
        " make one with: openssl genpkey -algorithm ed25519 -out FILE."
    )


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
