"""Where a PostgreSQL store is: its address, how to connect, and explanations of its errors."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module, metadata
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import GatewayError, SettingsInvalid, StoreUnavailable

driver: Any = import_module("asyncpg")
"""The driver, imported by name because it has no types of its own."""
Session = Any
DatabaseRow = Sequence[Any]
Fetch = Callable[..., Awaitable[list[DatabaseRow]]]
"""Takes a query and its values; the rows."""
Result = TypeVar("Result")

DEFAULT_SCHEMA = "openclaw_a2a"
OLDEST_SERVER = 14

CONNECT_WAIT_S = 10.0
_STATEMENT_S = 30
"""How long the server works on a statement before it gives up."""
_ANSWER_S = _STATEMENT_S + 10.0
"""How long an answer is waited for: a server that vanished sends none."""

LOST: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    driver.InterfaceError,
    driver.InternalClientError,  # a message of the server that broke off confuses the driver
    driver.PostgresConnectionError,
    driver.AdminShutdownError,
    driver.CrashShutdownError,
    driver.CannotConnectNowError,
    driver.ReadOnlySQLTransactionError,  # after a failover, connected to the old primary
    driver.IdleInTransactionSessionTimeoutError,
)
"""The connection is gone, or of no use; what was under way may or may not have been done."""

# Every query here has an index that fits it. Plans are made once, without the values, and then the
# estimates of the planner are worst; so they are planned with an index where there is one, and
# without parallel workers, which would read ahead for a page that one process has sooner.
# A server that receives nothing from its client for about half a minute, not even answers to
# keepalives, ends the session, and with it the lock on the store; otherwise a gateway on another
# machine would wait for hours. A session that is merely idle must not end. What is acknowledged is
# durable, also where the server or the role is set to take that lightly.
_SESSION = f"""
SET statement_timeout TO '{_STATEMENT_S}s';
SET lock_timeout TO '{_STATEMENT_S}s';
SET idle_in_transaction_session_timeout TO '{2 * _STATEMENT_S}s';
SET idle_session_timeout TO 0;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off';
SET tcp_keepalives_idle TO 10;
SET tcp_keepalives_interval TO 5;
SET tcp_keepalives_count TO 3;
SET plan_cache_mode TO force_generic_plan;
SET enable_seqscan TO off;
SET enable_bitmapscan TO off;
SET max_parallel_workers_per_gather TO 0;
SET jit TO off;
"""


class Address(msgspec.Struct, frozen=True):
    """A database: its URL, without a password unless the URL is a secret itself.

    The options of libpq in its query (`sslmode`, `sslrootcert`, `sslcert`, `sslkey`,
    `target_session_attrs`) are the driver's. `schema` is the namespace of the tables.
    """

    url: str
    password: str = ""
    schema: str = DEFAULT_SCHEMA

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
        except ValueError:
            raise _unreadable() from None  # its text has the password
        if parts.scheme not in ("postgres", "postgresql"):
            raise SettingsInvalid(
                f"store.url must begin with postgres:// (it begins with {parts.scheme!r})"
            )
        hosts = parts.netloc.rpartition("@")[2].split(",")
        has_ports = all(map(_HOST.fullmatch, hosts))
        if "@" in parts.path or parts.fragment or not has_ports:
            raise _unreadable()

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def shown(self) -> str:
        """The address for people: no password, no options."""
        parts = urlsplit(self.url)
        user = f"{parts.username}@" if parts.username else ""
        host = parts.netloc.rpartition("@")[2]
        name = f"postgres://{user}{host}{parts.path}"
        return name if self.schema == DEFAULT_SCHEMA else f"{name} (schema {self.schema})"

    @property
    def place(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc.rpartition("@")[2] or "the local socket"

    @property
    def database(self) -> str:
        parts = urlsplit(self.url)
        return unquote(parts.path.lstrip("/")) or self.user

    @property
    def user(self) -> str:
        return unquote(urlsplit(self.url).username or "") or "the current user"

    def options(self) -> dict[str, Any]:
        """The keywords of a connection."""
        version = metadata.version("openclaw-a2a")
        name = f"openclaw-a2a {version} {os.getpid()}@{socket.gethostname()}"[:63]
        options: dict[str, Any] = {
            "dsn": self.url,
            "timeout": CONNECT_WAIT_S,
            "command_timeout": _ANSWER_S,
            "statement_cache_size": 256,
            "max_cached_statement_lifetime": 0,
            # Statements of any length: the text of a large batch is a few kilobytes.
            "max_cacheable_statement_size": 0,
            "server_settings": {"application_name": name},
        }
        if self.password:
            options["password"] = self.password
        return options

    async def connect(self) -> Session:
        """A connection, ready to use. Raises: StoreUnavailable."""
        try:
            connection = await driver.connect(**self.options())
        except (driver.PostgresError, *LOST, ValueError) as error:
            raise self.explain(error) from error
        try:
            await self.prepare(connection)
            await self._check_server(connection)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, (driver.PostgresError, *LOST)):
                raise self.explain(error) from error
            raise
        return connection

    async def prepare(self, connection: Session) -> None:
        """Set the session up; for the connections of a pool, too."""
        # By statements, not in the startup message: poolers refuse settings that they do not know.
        await connection.execute(f"SET search_path TO {quote_name(self.schema)}; {_SESSION}")

    async def _check_server(self, connection: Session) -> None:
        version = connection.get_server_version().major
        if version < OLDEST_SERVER:
            raise StoreUnavailable(
                f"{self.place} is PostgreSQL {version}; this gateway needs {OLDEST_SERVER} or newer"
            )
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"the database {self.database} at {self.place} has the encoding {encoding}, which "
                "cannot hold every text; make one with UTF8 (createdb --encoding=UTF8 "
                "--template=template0)"
            )
        if await connection.fetchval("SELECT pg_is_in_recovery()"):
            raise StoreUnavailable(
                f"{self.place} is a standby and takes no writes; give the address of the primary, "
                "or several hosts with target_session_attrs=read-write"
            )

    def explain(self, error: BaseException) -> GatewayError:
        """The error in plain words: what, where, what to do."""
        if isinstance(error, GatewayError):
            return error
        fitting = (sentence for kinds, sentence in _SENTENCES if isinstance(error, kinds))
        sentence = next(fitting, "the database at {place} failed: {reason}; look at its log")
        reason = str(error) or type(error).__name__
        return StoreUnavailable(
            sentence.format(
                place=self.place,
                database=self.database,
                user=self.user,
                schema=self.schema,
                reason=reason.splitlines()[0].rstrip("."),
                seconds=f"{CONNECT_WAIT_S:g}",
            )
        )


_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")
"""A host with its port. Anything else is a part of a password that has a `/`, `?` or `#`."""


def _unreadable() -> SettingsInvalid:
    """It does not show the address: which part of it is the password is unknown."""
    return SettingsInvalid(
        "store.url cannot be read as an address; in its user and password write every special "
        "character with its code, such as %2F for / and %40 for @"
    )


_SENTENCES: tuple[tuple[Any, str], ...] = (
    (
        (driver.InvalidPasswordError, driver.InvalidAuthorizationSpecificationError),
        "the database at {place} refused the user {user}: {reason}; check store.url and "
        "store.password",
    ),
    (
        driver.InvalidCatalogNameError,
        "there is no database {database!r} at {place}; create it (createdb {database}), or correct "
        "store.url",
    ),
    (
        driver.TooManyConnectionsError,
        "the database at {place} has no connection left: {reason}; raise its max_connections, or "
        "lower store.connections",
    ),
    (
        driver.InsufficientPrivilegeError,
        "the user {user} may not use the schema {schema} of {database}: {reason}; as its owner: "
        "CREATE SCHEMA {schema} AUTHORIZATION {user}",
    ),
    (driver.CannotConnectNowError, "the database at {place} is not ready: {reason}; wait for it"),
    (
        (ssl.SSLError, driver.ClientConfigurationError, ValueError),
        "the connection to {place} cannot be made as store.url says: {reason}; check its options "
        "(sslmode, sslrootcert, sslcert, sslkey)",
    ),
    (
        (FileNotFoundError, PermissionError),
        "the connection to {place} cannot be made: {reason}; check the files that store.url names "
        "(sslrootcert, sslcert, sslkey), or that of the socket",
    ),
    (
        TimeoutError,
        "the database at {place} did not answer within {seconds} s; check the address and that "
        "nothing blocks it",
    ),
    (
        OSError,
        "the database at {place} cannot be reached: {reason}; check that PostgreSQL runs there and "
        "that store.url is right",
    ),
)
"""The first that fits; errors of TLS and of time are errors of the system, too."""


async def retry_for(
    work: Callable[[], Awaitable[Result]],
    errors: tuple[type[BaseException], ...],
    backoff: Backoff,
    *,
    within_s: float,
    on_wait: Callable[[int], None] = lambda _: None,
) -> Result:
    """Repeat work that fails with one of these errors; the last one is raised after `within_s`.

    `on_wait` is called before each pause, with the number of attempts so far.
    """
    clock = asyncio.get_running_loop().time
    give_up_at, attempt = clock() + within_s, 0
    while True:
        attempt += 1
        try:
            return await work()
        except errors:
            delay_s = backoff.delay_s(attempt)
            if clock() + delay_s > give_up_at:
                raise
        on_wait(attempt)
        await asyncio.sleep(delay_s)


def quote_name(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
