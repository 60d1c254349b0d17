"""Encryption at rest of what may hold credentials: the bodies of deliveries and records.

AES-256-GCM; the kind and id of a row are authenticated with it, so that a body moved to another row
is not accepted. The nonce is a keyed hash of row and body: the same body has the same stored form,
which the stores need (the body of a delivery is its version), and two bodies never share a nonce.

Several keys: the first one writes, all of them read. Bodies that are not encrypted, from before a
key was set, are read as they are.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import SettingsInvalid, StoreUnavailable, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    DeliveryPage,
    Record,
    Store,
    Submission,
    SupportsBodyReplacement,
    SupportsTaskSearch,
)
from openclaw_a2a.store.rules import report_damage

if TYPE_CHECKING:
    import asyncio

    from openclaw_a2a.ports import Accepted, DeliveryStore, Duplicate, RecordStore, TaskStore

log = get_logger(__name__)

_MARK = b"\x00e1"
"""The beginning of an encrypted body. JSON, and the other bodies that are stored, never have it."""
_ID_BYTES, _NONCE_BYTES = 4, 12
_HEAD_BYTES = len(_MARK) + _ID_BYTES + _NONCE_BYTES
_PAGE = 500
_CHECK = Record("encryption", "check", b"{}", datetime.max.replace(tzinfo=UTC))
"""Stored encrypted, so that a start notices a wrong key before anything is written with it."""
_SETTING = "security.encryption.keys"


class _Key:
    """One key, split into one that encrypts and one that makes nonces."""

    def __init__(self, secret: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise SettingsInvalid(
                f'{_SETTING} needs a library: pip install "openclaw-a2a[encryption]"'
            ) from error
        self.id = hashlib.sha256(b"id" + secret).digest()[:_ID_BYTES]
        self._nonces = hmac.digest(secret, b"nonce", "sha256")
        self._cipher = AESGCM(hmac.digest(secret, b"cipher", "sha256"))

    def encrypt(self, name: bytes, body: bytes) -> bytes:
        # With its length: another split of the same bytes must not give the same nonce.
        content = b"%d:%b%b" % (len(name), name, body)
        nonce = hmac.digest(self._nonces, content, "sha256")[:_NONCE_BYTES]
        return _MARK + self.id + nonce + self._cipher.encrypt(nonce, body, name)

    def decrypt(self, name: bytes, stored: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        nonce = stored[len(_MARK) + _ID_BYTES : _HEAD_BYTES]
        try:
            return self._cipher.decrypt(nonce, stored[_HEAD_BYTES:], name)
        except (InvalidTag, ValueError):
            raise ValueError("it was changed, or belongs to another row") from None


class MissingKey(Exception):
    """No configured key decrypts a body."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"it is encrypted with the key {key_id}, which is not among {_SETTING}; add it there"
        )


class BodyCipher:
    """Encrypts bodies with the first key, and decrypts those of all keys."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = [_Key(key) for key in keys]

    def encrypt(self, name: bytes, body: bytes) -> bytes:
        return self._keys[0].encrypt(name, body)

    def stored_forms(self, name: bytes, body: bytes) -> list[bytes]:
        """Every form in which the body may be stored, the newest first."""
        return [*(key.encrypt(name, body) for key in self._keys), body]

    def decrypt(self, name: bytes, stored: bytes) -> bytes:
        """Raises: MissingKey, ValueError (it was changed)."""
        if not stored.startswith(_MARK):
            return stored
        key_id = stored[len(_MARK) : len(_MARK) + _ID_BYTES]
        for key in self._keys:
            if key.id == key_id:
                return key.decrypt(name, stored)
        raise MissingKey(key_id.hex())


def _delivery_name(delivery: Delivery) -> bytes:
    return f"delivery\0{delivery.kind}\0{delivery.id}".encode("utf-8", "surrogatepass")


def _record_name(kind: str, record_id: str) -> bytes:
    return f"record\0{kind}\0{record_id}".encode("utf-8", "surrogatepass")


async def check_no_key_needed(store: Store) -> None:
    """Raises SettingsInvalid when a store was encrypted and no key is set."""
    record = await store.records.read_record(_CHECK.kind, _CHECK.id)
    if record is not None:
        raise SettingsInvalid(
            f"the store is encrypted and {_SETTING} is not set; set it to the key that it was "
            "written with. Nothing was changed"
        )


class _EncryptedDeliveries:
    """A delivery store whose bodies are encrypted."""

    def __init__(self, inner: "DeliveryStore", cipher: BodyCipher) -> None:
        self._inner = inner
        self._cipher = cipher
        self.delete_delivery = inner.delete_delivery

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        return self._inner.put_delivery(self.encrypt(delivery), within=within)

    async def update_delivery(self, delivery: Delivery) -> bool:
        # A row from before a rotation has another form: it is found under that one.
        for body in self._cipher.stored_forms(_delivery_name(delivery), delivery.body):
            stored = msgspec.structs.replace(delivery, body=body)
            if await self._inner.update_delivery(stored):
                return True
        return False

    async def read_delivery(
        self, scope: Scope | None, delivery_id: DeliveryId, *, only_own: bool = False
    ) -> Delivery | None:
        found = await self._inner.read_delivery(scope, delivery_id, only_own=only_own)
        decrypted = self._decrypt(() if found is None else (found,))
        return decrypted[0] if decrypted else None

    async def list_task_deliveries(
        self, scope: Scope | None, task_id: TaskId, *, only_own: bool = False
    ) -> list[Delivery]:
        found = await self._inner.list_task_deliveries(scope, task_id, only_own=only_own)
        return self._decrypt(found)

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        page = await self._inner.list_unfinished_deliveries(after=after, limit=limit)
        return DeliveryPage(tuple(self._decrypt(page.deliveries)), page.next_after)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        return self._decrypt(await self._inner.list_deliveries(state, after=after, limit=limit))

    def encrypt(self, delivery: Delivery) -> Delivery:
        body = self._cipher.encrypt(_delivery_name(delivery), delivery.body)
        return msgspec.structs.replace(delivery, body=body)

    def _decrypt(self, rows: Sequence[Delivery]) -> list[Delivery]:
        """The rows that can be decrypted; the others stay stored and are reported."""
        decrypted: list[Delivery] = []
        for row in rows:
            try:
                body = self._cipher.decrypt(_delivery_name(row), row.body)
            except (MissingKey, ValueError) as error:
                report_damage("encrypted", "delivery", row.id, str(error))
            else:
                decrypted.append(msgspec.structs.replace(row, body=body))
        return decrypted

    async def rotate(self) -> int:
        """Encrypt with the first key what is not; how many deliveries were written."""
        count = 0
        for state in DeliveryState:
            after = DeliveryId("")
            while page := await self._inner.list_deliveries(state, after=after, limit=_PAGE):
                after = page[-1].id
                for stored, plain in ((row, self._decrypt([row])) for row in page):
                    if plain and (fresh := self.encrypt(plain[0])) != stored:
                        count += await self._rewrite(stored, fresh)
        return count

    async def _rewrite(self, stored: Delivery, fresh: Delivery) -> bool:
        if isinstance(self._inner, SupportsBodyReplacement):
            # Another replica may be sending it: it stays that one's, with its progress.
            return await self._inner.replace_body(stored.id, known=stored.body, body=fresh.body)
        try:
            return await self._inner.put_delivery(fresh, within=1 << 30)
        except TaskNotFound:  # its task was never made: the outbox removes it
            return False


class _EncryptedRecords:
    """A record store whose bodies are encrypted."""

    def __init__(self, inner: "RecordStore", cipher: BodyCipher) -> None:
        self._inner = inner
        self._cipher = cipher
        self.delete_record = inner.delete_record

    def put_record(self, record: Record) -> Awaitable[None]:
        return self._inner.put_record(self.encrypt(record))

    def update_record(self, record: Record) -> Awaitable[bool]:
        return self._inner.update_record(self.encrypt(record))

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        found = await self._inner.read_record(kind, record_id)
        return None if found is None else self._decrypt(found)

    async def list_records(self, kind: str) -> list[Record]:
        return [self._decrypt(row) for row in await self._inner.list_records(kind)]

    def encrypt(self, record: Record) -> Record:
        body = self._cipher.encrypt(_record_name(record.kind, record.id), record.body)
        return msgspec.structs.replace(record, body=body)

    def _decrypt(self, record: Record) -> Record:
        try:
            body = self._cipher.decrypt(_record_name(record.kind, record.id), record.body)
        except MissingKey as error:
            # Not skipped: a call or a handle that is left out would look finished.
            raise StoreUnavailable(
                f"the {record.kind} record {record.id!r} cannot be read: {error}"
            ) from None
        except ValueError as error:
            report_damage("encrypted", f"{record.kind} record", record.id, str(error))
            body = b""  # which cannot be decoded: it is treated as any damaged record
        return msgspec.structs.replace(record, body=body)


class _EncryptedTasks:
    """A task store; what comes with a submission is encrypted, the rest is the store's own."""

    def __init__(
        self, inner: "TaskStore", deliveries: _EncryptedDeliveries, records: _EncryptedRecords
    ) -> None:
        self._inner = inner
        self._deliveries = deliveries
        self._records = records
        self.commit = inner.commit
        self.start_run = inner.start_run
        self.finish_run = inner.finish_run
        self.claim_runs = inner.claim_runs
        self.list_orphaned_tasks = inner.list_orphaned_tasks
        self.read_task = inner.read_task
        self.read_snapshot = inner.read_snapshot
        self.measure_task = inner.measure_task
        self.read_outline = inner.read_outline
        self.read_contents = inner.read_contents
        self.read_resume_token = inner.read_resume_token
        self.read_events = inner.read_events
        self.list_recent_tasks = inner.list_recent_tasks
        self.count_tasks = inner.count_tasks
        self.list_by_status = inner.list_by_status
        self.list_tasks = inner.list_tasks
        self.find_duplicate = inner.find_duplicate
        self.delete_task = inner.delete_task
        self.purge = inner.purge

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        changed: dict[str, Any] = {}
        if submission.delivery is not None:
            changed["delivery"] = self._deliveries.encrypt(submission.delivery)
        if submission.record is not None:
            changed["record"] = self._records.encrypt(submission.record)
        return self._inner.submit(
            msgspec.structs.replace(submission, **changed) if changed else submission
        )


class EncryptedStore(Store):
    """A store that encrypts the bodies of deliveries and records."""

    def __init__(self, inner: Store, keys: Sequence[bytes]) -> None:
        self._inner = inner
        cipher = BodyCipher(keys)
        self.is_durable = inner.is_durable
        self._deliveries = _EncryptedDeliveries(inner.deliveries, cipher)
        self._records = _EncryptedRecords(inner.records, cipher)
        self.deliveries = self._deliveries
        self.records = self._records
        self.tasks = _EncryptedTasks(inner.tasks, self._deliveries, self._records)
        self.logs = inner.logs
        self.replicas = inner.replicas
        self.check = inner.check
        if isinstance(inner, SupportsTaskSearch):
            self.search_tasks = inner.search_tasks

    async def open(self) -> None:
        """Open the store; what was written before the first key was set is encrypted now.

        Raises: StoreUnavailable (it was written with another key), and what the store raises.
        """
        await self._inner.open()
        try:
            known = await self._records.read_record(_CHECK.kind, _CHECK.id)
            count = await self._deliveries.rotate()
            if known is None or count:
                log.info("store.encrypted", deliveries=count)
            stored = self._records.encrypt(_CHECK)
            if await self._inner.records.read_record(_CHECK.kind, _CHECK.id) != stored:
                await self._inner.records.put_record(stored)
        except BaseException:
            await self._inner.close()
            raise

    async def close(self) -> None:
        """Close the store."""
        await self._inner.close()
