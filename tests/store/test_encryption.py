"""Encryption at rest in both durable stores: nothing readable in files, rotation, wrong keys."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.store_samples import Draft, direct, make_delivery, make_record, time_at

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import SettingsInvalid, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Store
from openclaw_a2a.settings.tokens import decode_key
from openclaw_a2a.store import create_store
from openclaw_a2a.store.encryption import BodyCipher, MissingKey, check_no_key_needed

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b'{"token":"precious-webhook-token"}'
TASK = TaskId("t-1")


@pytest.fixture(params=["sqlite", "json-file"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class Disk:
    """A store that is opened with one set of keys after the other."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder / "store"
        self._kind = kind
        self._store: Store | None = None

    async def open(self, *keys: bytes) -> Store:
        await self.close()
        path = self.folder / ("state.db" if self._kind == "sqlite" else "tasks")
        store = create_store(self._kind, path=str(path), keys=keys)
        await store.open()
        self._store = store
        return store

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    def content(self) -> bytes:
        """Every byte of every file."""
        files = [Path(base) / name for base, _, names in os.walk(self.folder) for name in names]
        return b"".join([file.read_bytes() for file in files])


@pytest.fixture
async def disk(tmp_path: Path, kind: str):
    disk = Disk(tmp_path, kind)
    yield disk
    await disk.close()


def holds(content: bytes, secret: bytes) -> bool:
    """True when a secret can be read in the bytes of files, as it is or as base64."""
    # Where a group of three bytes begins, base64 of the same text is another.
    spelled = [
        base64.b64encode(bytes(before) + secret)[4 if before else 0 : -4] for before in range(3)
    ]
    return any(one in content for one in (secret, *spelled))


def secret_delivery(name: str = "one") -> Delivery:
    return msgspec.structs.replace(make_delivery(name=name), body=SECRET)


async def put_all(store: Store) -> None:
    """A task with a delivery, another delivery, and records by every way there is."""
    submission = msgspec.structs.replace(
        Draft().submission(),
        delivery=secret_delivery("with its task"),
        record=msgspec.structs.replace(make_record("with its task"), body=SECRET),
    )
    await store.tasks.submit(submission)
    assert await store.deliveries.put_delivery(secret_delivery(), within=9)
    await store.records.put_record(msgspec.structs.replace(make_record("put"), body=SECRET))
    first = msgspec.structs.replace(make_record("updated"), body=SECRET)
    assert await store.records.update_record(first)
    assert await store.records.update_record(msgspec.structs.replace(first, version=1))


async def bodies(store: Store) -> list[bytes]:
    deliveries = await store.deliveries.list_task_deliveries(None, TASK)
    records = await store.records.list_records("handle")
    return [row.body for row in (*deliveries, *records)]


async def test_credentials_are_in_no_file_and_are_read_back(disk: Disk) -> None:
    store = await disk.open(NEW)
    await put_all(store)
    assert await bodies(store) == [SECRET] * 5
    await disk.close()
    assert not holds(disk.content(), SECRET)
    assert await bodies(await disk.open(NEW)) == [SECRET] * 5
    # A killed process leaves its log as it is: nothing readable there either.
    assert not holds(disk.content(), SECRET)


async def test_without_a_key_everything_is_stored_as_before(disk: Disk) -> None:
    store = await disk.open()
    await put_all(store)
    await check_no_key_needed(store)
    assert await bodies(store) == [SECRET] * 5
    assert holds(disk.content(), SECRET)


async def test_what_was_stored_before_a_key_was_set_is_encrypted_with_the_next_start(
    disk: Disk,
) -> None:
    await put_all(await disk.open())
    store = await disk.open(NEW)
    assert await bodies(store) == [SECRET] * 5
    for row in await store.records.list_records("handle"):
        await store.records.put_record(row)  # records follow with their next write
    await disk.close()
    inner = await disk.open()
    stored = await bodies(inner)
    assert not [body for body in stored if b"precious" in body]


@pytest.mark.parametrize("keys", [(NEW, OLD), (OLD, NEW)])
async def test_all_keys_read_and_deliveries_go_on_through_a_rotation(
    disk: Disk, keys: Sequence[bytes]
) -> None:
    await put_all(await disk.open(OLD))
    store = await disk.open(*keys)
    assert await bodies(store) == [SECRET] * 5
    row = (await store.deliveries.list_task_deliveries(None, TASK))[0]
    moved = msgspec.structs.replace(row, cursor=3, updated_at=time_at(5))
    assert await store.deliveries.update_delivery(moved)
    assert await store.deliveries.read_delivery(None, row.id) == moved
    replaced = msgspec.structs.replace(moved, body=b"another")
    assert not await store.deliveries.update_delivery(replaced)
    # The deliveries are under the first key now.
    only = await disk.open(keys[0])
    assert len(await only.deliveries.list_task_deliveries(None, TASK)) == 2


async def test_wrong_key_is_a_clear_error_and_nothing_is_lost(disk: Disk) -> None:
    await put_all(await disk.open(OLD))
    await disk.close()
    before = disk.content()
    with pytest.raises(StoreUnavailable, match=r"security\.encryption\.keys"):
        await disk.open(NEW)
    store = await disk.open(OLD)
    assert await bodies(store) == [SECRET] * 5
    assert before.count(b"precious") == 0


async def test_missing_key_is_a_clear_error(disk: Disk) -> None:
    await put_all(await disk.open(OLD))
    store = await disk.open()
    with pytest.raises(SettingsInvalid, match=r"security\.encryption\.keys"):
        await check_no_key_needed(store)


async def test_record_under_a_key_that_was_removed_is_an_error_and_not_a_missing_record(
    disk: Disk,
) -> None:
    await put_all(await disk.open(OLD))
    await disk.open(NEW, OLD)
    store = await disk.open(NEW)
    with pytest.raises(StoreUnavailable, match="is encrypted with the key"):
        await store.records.read_record("handle", "put")


async def test_body_moved_to_another_row_is_not_accepted(disk: Disk) -> None:
    await put_all(await disk.open(NEW))
    inner = await disk.open()
    stored = await inner.records.read_record("handle", "put")
    assert stored is not None
    await inner.records.put_record(msgspec.structs.replace(stored, id="forged"))
    store = await disk.open(NEW)
    forged = await store.records.read_record("handle", "forged")
    assert forged is not None
    assert forged.body == b""
    assert (await store.records.read_record("handle", "put")).body == SECRET  # type: ignore[union-attr] - stored above


async def test_unfinished_and_failed_deliveries_are_listed_decrypted(disk: Disk) -> None:
    store = await disk.open(NEW)
    await put_all(store)
    page = await store.deliveries.list_unfinished_deliveries(after=DeliveryId(""), limit=10)
    assert [row.body for row in page.deliveries] == [SECRET] * 2
    idle = await store.deliveries.list_deliveries(
        DeliveryState.IDLE, after=DeliveryId(""), limit=10
    )
    assert [row.body for row in idle] == [SECRET] * 2
    await store.tasks.submit(direct("plain"))


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_every_body_comes_back_under_its_own_name_only(body: bytes, name: bytes) -> None:
    cipher, other = BodyCipher([NEW, OLD]), BodyCipher([b"x" * 32])
    stored = cipher.encrypt(name, body)
    assert cipher.decrypt(name, stored) == body
    assert cipher.encrypt(name, body) == stored
    assert all(cipher.decrypt(name, form) == body for form in cipher.stored_forms(name, body)[:-1])
    with pytest.raises(ValueError, match="another row"):
        cipher.decrypt(name + b"x", stored)
    with pytest.raises(MissingKey):
        other.decrypt(name, stored)
    with pytest.raises(ValueError, match="changed"):
        cipher.decrypt(name, stored[:-1] + bytes([stored[-1] ^ 1]))


@pytest.mark.parametrize("text", ["", "short", "z" * 64, "é" * 32, "A" * 44 + "!"])
def test_texts_that_hold_no_key_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="openssl rand"):
        decode_key(text)


def test_keys_are_base64_or_hex() -> None:
    import base64

    key = bytes(range(32))
    assert decode_key(base64.b64encode(key).decode()) == key
    assert decode_key(base64.urlsafe_b64encode(key).decode().rstrip("=") + "\n") == key
    assert decode_key(key.hex()) == key
