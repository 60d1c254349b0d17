"""An issuer of tokens on loopback: its configuration, its keys, and tokens of every kind."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

Json = Any
AUDIENCE = "https://gateway.example"
_KEYS = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}
_SIZES = {"RS": 2048, "PS": 2048, "ES": "P-256", "Ed": "Ed25519"}


class SigningKey:
    """A key pair of an issuer."""

    def __init__(self, key_id: str | None, algorithm: str = "RS256") -> None:
        self.id = key_id
        self.algorithm = algorithm
        family = algorithm[:2]
        self.pair = _KEYS[family].generate_key(_SIZES[family])  # type: ignore[arg-type]

    def public(self, **more: Json) -> dict[str, Json]:
        """The member of a key set."""
        named = {} if self.id is None else {"kid": self.id}
        return {**self.pair.as_dict(private=False), **named, "use": "sig", **more}

    def sign(self, header: Json, claims: Json) -> str:
        """A token with exactly this header and these claims, which may be JSON text."""
        head = ".".join(encode(one) for one in (header, claims))
        signature = JWSRegistry.algorithms[self.algorithm].sign(head.encode(), self.pair)
        return f"{head}.{base64url(signature)}"


class LocalIssuer:
    """An issuer at `url`; what it publishes can be changed while it serves."""

    def __init__(self, url: str = "http://127.0.0.1:1") -> None:
        self.url = url
        self.key = SigningKey("first")
        self.keys: list[Json] = [self.key.public()]
        self.configuration: dict[str, Json] = {"issuer": url, "jwks_uri": f"{url}/keys"}
        self.status = 200
        self.asked: list[str] = []

    def rotate(self, key_id: str) -> None:
        """Publish another key instead."""
        self.key = SigningKey(key_id)
        self.keys = [self.key.public()]

    def document(self, path: str) -> bytes:
        """What it publishes at a path."""
        self.asked.append(path)
        documents = {
            "/.well-known/openid-configuration": self.configuration,
            "/keys": {"keys": self.keys},
        }
        return json.dumps(documents[path]).encode()

    def claims(self, **changed: Json) -> dict[str, Json]:
        """Claims of a valid token; a changed one that is None is left out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "iat": now}
        return {key: one for key, one in {**claims, **changed}.items() if one is not None}

    def header(self, **changed: Json) -> dict[str, Json]:
        """The header of a valid token; a changed one that is None is left out."""
        header = {"alg": self.key.algorithm, "kid": self.key.id, "typ": "JWT", **changed}
        return {key: one for key, one in header.items() if one is not None}

    def token(self, *, header: Json = None, key: SigningKey | None = None, **claims: Json) -> str:
        """A token; valid unless something is changed."""
        return (key or self.key).sign(self.header(**(header or {})), self.claims(**claims))

    def settings(self, **more: Json) -> dict[str, Json]:
        """The issuer in the settings of a gateway."""
        return {"issuer": self.url, "audience": [AUDIENCE], "name": "corp", **more}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def encode(part: Json) -> str:
    """A part of a token: JSON text as it is, anything else as JSON."""
    return base64url((part if isinstance(part, str) else json.dumps(part)).encode())


@contextmanager
def serve_issuer() -> Iterator[LocalIssuer]:
    """An issuer that answers on loopback."""
    issuer = LocalIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, body = issuer.status, issuer.document(self.path)
            except KeyError:
                status, body = 404, b"{}"
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            """The token endpoint: every client is its own subject, whatever its secret."""
            scheme, _, pair = self.headers["authorization"].partition(" ")
            client = base64.b64decode(pair).decode().partition(":")[0]
            granted = {
                "access_token": issuer.token(sub=client),
                "token_type": "Bearer",
                "expires_in": 300,
            }
            is_right = scheme == "Basic" and self.path == "/token"
            body = json.dumps(granted).encode()
            self.send_response(200 if is_right else 400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        issuer.configuration = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()
