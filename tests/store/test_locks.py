"""The lock file of a json-file directory: who may write there, and when a lock is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.abc
import pytest
from tests.contracts.store_samples import direct

from openclaw_a2a.model.errors import StoreLocked, StoreUnavailable
from openclaw_a2a.store.json_file.store import JsonFileStore
from openclaw_a2a.store.locks import WriterLock

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / ".writer.lock"


def write(lock: Path, pid: int, *, age_s: float = 0, starttime: int | None = None) -> bytes:
    holder = {"pid": pid, "createdAt": (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat()}
    content = json.dumps(holder if starttime is None else {**holder, "starttime": starttime})
    lock.write_text(content, encoding="utf-8")
    return content.encode()


def content_of(lock: Path) -> bytes | None:
    return lock.read_bytes() if lock.exists() else None


def holder_of(lock: Path) -> dict[str, str | int]:
    return json.loads(lock.read_bytes())


def starttime(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[19])


def is_free(lock: Path) -> bool:
    """Whether another holder could acquire the lock now (it is released again)."""
    mine = WriterLock(lock.parent)
    is_taken = mine.try_acquire()
    if is_taken:
        mine.release()
    return is_taken


@asynccontextmanager
async def living_process() -> AsyncIterator[anyio.abc.Process]:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    async with await anyio.open_process(command) as process:
        yield process
        process.kill()


@pytest.mark.requirement("store.json-file.one-writer")
async def test_the_lock_file_names_its_process_and_time(lock: Path) -> None:
    before = datetime.now(UTC)
    store = JsonFileStore(lock.parent)
    await store.open()
    holder = holder_of(lock)
    assert holder["pid"] == os.getpid()
    assert before <= datetime.fromisoformat(str(holder["createdAt"])) <= datetime.now(UTC)
    await store.close()


@pytest.mark.requirement("store.json-file.lock-removed")
async def test_the_lock_is_removed_when_the_store_is_closed(lock: Path) -> None:
    store = JsonFileStore(lock.parent)
    await store.open()
    await store.close()
    assert content_of(lock) is None


@pytest.mark.requirement("store.json-file.lock-removed")
async def test_the_lock_is_removed_when_the_process_exits(lock: Path) -> None:
    script = (
        "import asyncio, sys; from openclaw_a2a.store.json_file.store import JsonFileStore;"
        "asyncio.run(JsonFileStore(sys.argv[1]).open()); print('open')"
    )
    done = await anyio.run_process([sys.executable, "-c", script, str(lock.parent)])
    assert done.stdout.strip() == b"open"
    assert content_of(lock) is None


@pytest.mark.requirement("store.json-file.lock-counted")
def test_a_process_may_acquire_its_lock_several_times(lock: Path) -> None:
    first, second = WriterLock(lock.parent), WriterLock(lock.parent)
    assert first.try_acquire()
    assert second.try_acquire()
    first.release()
    assert lock.exists()
    second.release()
    assert not lock.exists()


@pytest.mark.requirement("store.json-file.lock-refused")
async def test_a_living_holder_is_waited_for_and_then_named(lock: Path) -> None:
    async with living_process() as holder:
        content = write(lock, holder.pid)
        store = JsonFileStore(lock.parent, lock_wait_s=5)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            with pytest.raises(StoreLocked, match=f"process {holder.pid} ") as refusal:
                await store.open()
            tasks.cancel_scope.cancel()
        assert str(lock) in refusal.value.message
        assert ticks > 1, "the event loop must go on while a store waits for its lock"
        assert content_of(lock) == content


async def test_a_lock_that_is_released_while_waiting_is_acquired(lock: Path) -> None:
    async with living_process() as holder:
        write(lock, holder.pid)
        store = JsonFileStore(lock.parent, lock_wait_s=60)

        async def let_go() -> None:
            await anyio.sleep(0.06)  # longer than the first look at the lock and its pause
            os.unlink(lock)  # noqa: PTH108 - one system call; nothing to wait for

        with anyio.fail_after(240):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(let_go)
                await store.open()
        assert holder_of(lock)["pid"] == os.getpid()
        await store.close()


@ON_LINUX
@pytest.mark.requirement("store.json-file.lock-reclaimed")
async def test_a_lock_of_a_dead_process_is_taken_over(lock: Path) -> None:
    async with living_process() as holder:
        began = starttime(holder.pid)
    write(lock, holder.pid, starttime=began)
    assert is_free(lock)
    write(lock, holder.pid)
    assert is_free(lock)


@ON_LINUX
@pytest.mark.requirement("store.json-file.lock-reclaimed")
def test_a_lock_of_a_zombie_is_taken_over(lock: Path) -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        write(lock, pid, starttime=starttime(pid))
        assert is_free(lock)
    finally:
        os.waitpid(pid, 0)


@ON_LINUX
@pytest.mark.requirement("store.json-file.lock-reclaimed")
async def test_a_lock_whose_pid_was_reused_is_taken_over(lock: Path) -> None:
    async with living_process() as holder:
        began = starttime(holder.pid)
        write(lock, holder.pid, starttime=began)
        assert not is_free(lock)
        write(lock, holder.pid, starttime=began - 1)
        assert is_free(lock)


@pytest.mark.requirement("store.json-file.lock-reclaimed")
async def test_a_lock_older_than_half_an_hour_is_taken_over(lock: Path) -> None:
    async with living_process() as holder:
        write(lock, holder.pid, age_s=29 * 60)
        assert not is_free(lock)
        write(lock, holder.pid, age_s=31 * 60)
        assert is_free(lock)


@ON_LINUX
@pytest.mark.requirement("store.json-file.lock-reclaimed")
def test_a_lock_with_our_own_pid_that_we_do_not_hold(lock: Path) -> None:
    write(lock, os.getpid())
    assert is_free(lock)
    write(lock, os.getpid(), starttime=starttime(os.getpid()) - 1)
    assert is_free(lock)
    write(lock, os.getpid(), starttime=starttime(os.getpid()))
    assert not is_free(lock)


@pytest.mark.requirement("store.json-file.lock-reclaimed")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"pid":"x"}',
        b"\xff",
        b'{"\xff":1}',
        b'{"x":"\xff"}',
        b'{"x":' + b"[" * 9999,
    ],
)
def test_an_unreadable_lock_is_taken_over_when_its_file_is_old(lock: Path, content: bytes) -> None:
    lock.write_bytes(content)
    assert not is_free(lock)
    old = time.time() - 31 * 60
    os.utime(lock, (old, old))
    assert is_free(lock)


def test_an_empty_lock_is_taken_over_after_a_minute(lock: Path) -> None:
    """Another program was killed between the creation of the file and its content."""
    lock.touch()
    now = time.time()
    os.utime(lock, (now - 30, now - 30))
    assert not is_free(lock)
    os.utime(lock, (now - 61, now - 61))
    assert is_free(lock)


@ON_LINUX
def test_a_process_that_is_killed_while_it_writes_its_lock_leaves_none(lock: Path) -> None:
    # The kernel kills it with its first write to a file.
    script = (
        "import resource, signal, sys; from pathlib import Path;"
        "from openclaw_a2a.store.locks import WriterLock;"
        "mine = WriterLock(Path(sys.argv[1])); signal.signal(signal.SIGXFSZ, signal.SIG_DFL);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); mine.try_acquire()"
    )
    command = [sys.executable, "-B", "-c", script, str(lock.parent)]
    ended = subprocess.run(command, check=False)
    assert ended.returncode == -signal.SIGXFSZ
    assert is_free(lock)


async def test_a_holder_renews_its_lock_while_it_writes(lock: Path) -> None:
    store = JsonFileStore(lock.parent)
    await store.open()
    write(lock, os.getpid(), age_s=20 * 60)
    await store.tasks.submit(direct("t-1"))
    created_at = datetime.fromisoformat(str(holder_of(lock)["createdAt"]))
    assert datetime.now(UTC) - created_at < timedelta(minutes=1)
    await store.close()
    assert content_of(lock) is None


async def test_a_holder_whose_lock_was_taken_stops_writing(lock: Path) -> None:
    store = JsonFileStore(lock.parent)
    await store.open()
    async with living_process() as thief:
        content = write(lock, thief.pid)
        with pytest.raises(StoreUnavailable, match="another process took the lock"):
            await store.tasks.submit(direct("t-1"))
        await store.close()
    assert content_of(lock) == content


async def test_a_killed_holders_lock_is_taken_over_at_once(lock: Path) -> None:
    script = (
        "import asyncio, sys; from openclaw_a2a.store.json_file.store import JsonFileStore;"
        "asyncio.run(JsonFileStore(sys.argv[1]).open()); print('open', flush=True);"
        "sys.stdin.read()"
    )
    async with await anyio.open_process([sys.executable, "-c", script, str(lock.parent)]) as holder:
        assert holder.stdout is not None
        assert (await holder.stdout.receive()).startswith(b"open")
        holder.kill()
    assert content_of(lock) is not None
    store = JsonFileStore(lock.parent, lock_wait_s=0)
    await store.open()
    await store.close()
