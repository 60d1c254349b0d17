"""TLS to a database: `sslmode=verify-full` really verifies, on every connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.postgres_server import PostgresServer

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.postgres.store import PostgresStore

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""What a client of PostgreSQL that wants TLS sends first."""


def make_certificate(folder: Path, name: str, host: str) -> tuple[Path, Path]:
    """A certificate for a host that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return paths


class TlsFront:
    """Takes connections as a PostgreSQL with TLS does, and passes them on to one without."""

    def __init__(self, server: PostgresServer, certificate: tuple[Path, Path]) -> None:
        self._server = server
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(*certificate)
        self.port = 0
        self.encrypted = 0
        """How many connections have got that far."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
                return  # without TLS nobody is served
            writer.write(b"S")
            await writer.start_tls(self._context)
            self.encrypted += 1
            behind = await asyncio.open_connection("127.0.0.1", self._server.port)
            await asyncio.gather(pass_on(reader, behind[1]), pass_on(behind[0], writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left, which some are to do
        finally:
            writer.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def tls_front(server: PostgresServer, folder: Path) -> AsyncIterator[TlsFront]:
    """Its certificate, `front.crt`, is for `localhost`."""
    front = TlsFront(server, make_certificate(folder, "front", "localhost"))
    listening = await asyncio.start_server(front.serve, "127.0.0.1", 0)
    front.port = listening.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        listening.close()


async def test_verify_full_connects_only_to_the_host_that_the_certificate_names(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    make_certificate(tmp_path, "other", "localhost")
    async with postgres.borrow_schema() as schema, tls_front(postgres, tmp_path) as front:

        def store(host: str, mode: str, certificate: str) -> PostgresStore:
            options = f"sslmode={mode}&sslrootcert={tmp_path / certificate}"
            url = f"postgres://postgres@{host}:{front.port}/postgres?{options}"
            return PostgresStore(Address(url, schema=schema))

        trusted = store("localhost", "verify-full", "front.crt")
        await trusted.open()
        await trusted.check()  # on a connection that reads
        assert front.encrypted >= 2
        await trusted.close()

        count = front.encrypted
        for wrong in (
            store("localhost", "verify-full", "other.crt"),
            store("localhost", "verify-ca", "other.crt"),
            store("127.0.0.1", "verify-full", "front.crt"),
            store("localhost", "verify-full", "missing.crt"),
        ):
            with pytest.raises(StoreUnavailable) as refused:
                await wrong.open()
            assert "sslrootcert" in refused.value.message
        assert front.encrypted == count
