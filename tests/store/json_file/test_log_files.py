"""Log files as other programs read and write them, and as a crash leaves them."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.captured_logs import capture_logs
from tests.contracts.store_samples import make_lines

from openclaw_a2a.model.errors import CorruptRecord, StoreLocked, StoreUnavailable
from openclaw_a2a.ports import LogAppend, StoredLog
from openclaw_a2a.store import create_store
from openclaw_a2a.store.json_file.log_files import log_file_name, log_id_of, parse_log
from openclaw_a2a.store.json_file.store import JsonFileStore

Json = Any
KIND, NAME = "objective", "a2a_obj_123.jsonl"


class Place:
    """A store of files, and the folder of its objectives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "objectives"
        self.file = self.folder / NAME
        self.store = JsonFileStore(path / "tasks")

    def hold(self, content: bytes, name: str = NAME) -> None:
        """Write a file as another program would."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(content)

    async def crash(self, content: bytes) -> None:
        """Have the next process find this."""
        await self.store.close()
        self.hold(content)
        await self.store.open()

    async def append(self, count: int, *, after: int) -> bool:
        bodies = [b'{"seq":%d}' % number for number in range(after + 1, after + count + 1)]
        return await self.store.logs.append_log(LogAppend(KIND, "obj-123", bodies, after=after))

    async def read(self) -> StoredLog:
        log = await self.store.logs.read_log(KIND, "obj-123")
        assert log is not None
        return log

    async def numbers(self) -> list[int]:
        return [line.sequence for line in (await self.read()).lines]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    await place.store.open()
    yield place
    await place.store.close()


def lines(*members: Json) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in members)


async def test_an_objective_has_one_file_of_plain_lines(place: Place) -> None:
    assert not place.folder.exists()
    await place.append(1, after=0)
    await place.append(2, after=1)
    content = await anyio.Path(place.file).read_bytes()
    assert [json.loads(line)["seq"] for line in content.splitlines()] == [1, 2, 3]
    assert content.endswith(b"\n")
    assert place.file.stat().st_mode & 0o777 == 0o600


async def test_the_folder_can_be_another_one(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "sessions"
    store = create_store("json-file", path=str(tmp_path / "tasks"), logs_directory=str(folder))
    await store.open()
    assert await store.logs.append_log(LogAppend(KIND, "obj-123", make_lines(0, 1), after=0))
    assert await store.logs.append_log(LogAppend("diary", "one", make_lines(0, 1), after=0))
    await store.close()
    assert sorted(file.name for file in folder.iterdir()) == [NAME]
    assert (tmp_path / "diarys" / "a2a_one.jsonl").exists()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_other_kinds_of_store_create_no_log_directory(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "objectives"
    store = create_store(kind, path=str(tmp_path / "state.db"), logs_directory=str(folder))
    await store.open()
    assert await store.logs.append_log(LogAppend(KIND, "obj-123", make_lines(0, 1), after=0))
    await store.close()
    assert not folder.exists()


@pytest.mark.requirement("opt.storage.cut-off")
@pytest.mark.parametrize("count", [1, 3])
async def test_a_change_truncated_at_any_byte_is_ignored_and_damages_nothing(
    place: Place, count: int
) -> None:
    await place.append(2, after=0)
    whole = await anyio.Path(place.file).read_bytes()
    await place.append(count, after=2)
    longer = await anyio.Path(place.file).read_bytes()
    for size in range(len(whole) + 1, len(longer) - 1):
        await place.crash(longer[:size])
        log = await place.read()
        assert (log.sequence, len(log.problems)) == (2, 1)
        assert "line 3" in log.problems[0]
        assert await place.append(1, after=2)
        assert await place.numbers() == [1, 2, 3]
        assert (await place.read()).problems == ()
        assert b"\x00" not in await anyio.Path(place.file).read_bytes()


@pytest.mark.parametrize("count", [1, 3])
async def test_a_change_that_lacks_only_its_line_end_is_read(place: Place, count: int) -> None:
    await place.append(count, after=0)
    whole = await anyio.Path(place.file).read_bytes()
    place.hold(whole[:-1])
    log = await place.read()
    assert (log.sequence, log.problems) == (count, ())
    assert await place.append(1, after=count)
    assert (await place.read()).problems == ()
    assert await place.numbers() == list(range(1, count + 2))


@pytest.mark.parametrize("count", [1, 3])
async def test_a_log_whose_first_change_was_truncated_is_not_found_and_can_be_created(
    place: Place, count: int
) -> None:
    await place.append(count, after=0)
    whole = await anyio.Path(place.file).read_bytes()
    for size in range(len(whole) - 1):
        await place.crash(whole[:size])
        assert await place.store.logs.read_log(KIND, "obj-123") is None
        assert await place.store.logs.list_open_logs(KIND, after="", limit=5) == []
        assert await place.store.logs.list_log_heads(KIND, after="", limit=5) == []
        assert await place.append(1, after=0)
        assert await place.numbers() == [1]


@pytest.mark.parametrize(
    "middle",
    [
        b"nonsense\n",
        b'{"seq": 2\n',
        b"[2]\n",
        b"\x00\x00\n",
        b'{"a":"\xff"}\n',
        b"{" * 9999 + b"\n",
    ],
)
async def test_an_unreadable_line_in_the_middle_is_skipped_and_reported(
    place: Place, middle: bytes
) -> None:
    place.hold(lines({"seq": 1}) + middle + lines({"seq": 3}))
    log = await place.read()
    assert [line.sequence for line in log.lines] == [1, 3]
    assert len(log.problems) == 1
    assert log.problems[0].startswith(f"line 2 of {NAME} cannot be read and is skipped: ")
    assert await place.append(1, after=3)
    assert middle in await anyio.Path(place.file).read_bytes()
    assert await place.numbers() == [1, 3, 4]


async def test_a_file_without_a_readable_line_is_no_log_and_is_reported(place: Place) -> None:
    place.hold(b"dear diary\n")
    with capture_logs() as logged:
        assert await place.store.logs.read_log(KIND, "obj-123") is None
    (entry,) = logged
    assert entry["event"] == "store.log_damaged"
    assert "line 1" in entry["reason"]
    assert await place.append(1, after=0)


async def test_an_unreadable_last_line_with_a_line_end_is_kept_in_the_file(place: Place) -> None:
    place.hold(lines({"seq": 1}) + b"oh no\n")
    assert (await place.read()).sequence == 1
    assert await place.append(1, after=1)
    assert await place.numbers() == [1, 2]
    assert b"oh no\n" in await anyio.Path(place.file).read_bytes()


NUMBERED: list[tuple[list[Json], list[int], int]] = [
    ([{"seq": 1}, {"seq": 5}, {"seq": 9}], [1, 5, 9], 0),
    ([{}, {}, {}], [1, 2, 3], 0),
    ([{"seq": 4}, {}, {"seq": 7}], [4, 5, 7], 0),
    ([{"seq": "1"}, {"seq": None}, {"seq": 2.5}, {"seq": True}], [1, 2, 3, 4], 0),
    ([{"seq": 0}, {"seq": 1}, {"seq": 2}], [1, 2, 3], 1),
    ([{"seq": 3}, {"seq": 2}, {"seq": 3}, {"seq": 9}], [3, 4, 5, 9], 1),
    ([{"seq": -7}, {"seq": 2**70}], [1, 2], 1),
]


@pytest.mark.parametrize(("members", "numbers", "problems"), NUMBERED)
async def test_lines_of_another_program_are_numbered(
    place: Place, members: list[Json], numbers: list[int], problems: int
) -> None:
    place.hold(lines(*members))
    assert await place.numbers() == numbers
    assert len((await place.read()).problems) == problems
    assert [
        head.sequence for head in await place.store.logs.list_log_heads(KIND, after="", limit=9)
    ] == [numbers[-1]]
    assert await place.append(2, after=numbers[-1])
    assert await place.numbers() == [*numbers, numbers[-1] + 1, numbers[-1] + 2]


async def test_a_file_written_on_another_system_is_read(place: Place) -> None:
    place.hold(b'\n{"seq": 1}\r\n\r\n  {"seq": 2}  \r\n{"seq": 3, "op": "archive"}\r\n')
    log = await place.read()
    assert [line.body[:9] for line in log.lines] == [b'{"seq": 1', b'{"seq": 2', b'{"seq": 3']
    assert (log.is_closed, log.problems) == (True, ())


async def test_a_file_that_is_added_or_extended_while_the_store_is_open_is_read(
    place: Place,
) -> None:
    await place.append(1, after=0)
    place.hold(lines({"seq": 1}, {"seq": 2}, {"seq": 3}))
    assert not await place.append(1, after=1)
    assert await place.append(1, after=3)
    place.hold(lines({"seq": 8}), "a2a_obj_new.jsonl")
    found = await place.store.logs.list_log_heads(KIND, after="", limit=5)
    assert [(head.id, head.sequence) for head in found] == [("obj-123", 4), ("obj-new", 8)]


async def test_a_log_is_closed_while_its_last_line_is_an_archive_line(place: Place) -> None:
    closed = [{"seq": number, "text": "x" * 100} for number in range(1, 100)]
    for members, is_closed in [
        ([{"op": "archive"}], True),
        ([*closed, {"op": "archive"}], True),
        ([*closed, {"op": "archive"}, {"op": "objective.update"}], False),
        ([*closed, {"op": ["archive"]}], False),
        (closed, False),
    ]:
        for ending in (b"", b'{"half', b"\n\n", b"broken\n"):
            place.hold(lines(*members) + ending)
            opened = await place.store.logs.list_open_logs(KIND, after="", limit=5)
            assert ([log.id for log in opened] == []) == is_closed
            assert (await place.read()).is_closed == is_closed


async def test_files_that_are_no_logs_stay_unchanged(place: Place) -> None:
    await place.append(1, after=0)
    for name in ("3f2a.jsonl", "a2a_x.json", "a2a_b d.jsonl", "a2a_%zz.jsonl", "a2a_%FF.jsonl"):
        place.hold(b"{}\n", name)
    (place.folder / "a2a_folder.jsonl").mkdir()
    secret = place.folder / "a2a_secret.jsonl"
    secret.write_bytes(b"{}\n")
    secret.chmod(0)
    with capture_logs() as logged:
        opened = await place.store.logs.list_open_logs(KIND, after="", limit=9)
    expected = ["obj-123", "secret"] if os.geteuid() == 0 else ["obj-123"]
    assert [log.id for log in opened] == expected
    unknown = {entry["file"] for entry in logged if entry["event"] == "store.log_name_unknown"}
    assert unknown == {
        *("a2a_b d.jsonl", "a2a_%zz.jsonl", "a2a_%FF.jsonl", "a2a_folder.jsonl"),
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"prose", b"[]", b'{"seq":1}\n{"seq":2}', b'{"seq":2}', b'{"a":"\xff"}', b'{"a":1'],
)
async def test_a_line_that_could_not_be_read_back_is_refused(place: Place, body: bytes) -> None:
    with pytest.raises(CorruptRecord, match="one JSON object per line"):
        await place.store.logs.append_log(LogAppend(KIND, "obj-123", [body], after=0))
    assert await place.store.logs.read_log(KIND, "obj-123") is None
    assert await place.append(1, after=0)


async def test_an_id_too_long_for_a_file_name_is_refused_and_not_found(place: Place) -> None:
    with pytest.raises(CorruptRecord, match="too long"):
        await place.store.logs.append_log(LogAppend(KIND, "x" * 300, make_lines(0, 1), after=0))
    assert await place.store.logs.read_log(KIND, "x" * 300) is None
    assert not await place.store.logs.delete_log(KIND, "x" * 300)


async def test_a_log_directory_that_cannot_be_created_is_reported(place: Place) -> None:
    await anyio.Path(place.folder).write_text("I am no folder", encoding="utf-8")
    with pytest.raises(StoreUnavailable):
        await place.append(1, after=0)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await place.store.logs.read_log(KIND, "obj-123")
    await place.store.check()
    place.folder.unlink()
    assert await place.append(1, after=0)


HOLD = """
import asyncio, sys
from openclaw_a2a.ports import LogAppend
from openclaw_a2a.store.json_file.store import JsonFileStore
async def main(path):
    store = JsonFileStore(path + "/other", logs_directory=path + "/objectives")
    await store.open()
    change = LogAppend("objective", "obj-1", [b"{}"], after=0)
    print(await store.logs.append_log(change), flush=True)
    sys.stdin.read()
asyncio.run(main(sys.argv[1]))
"""


async def test_a_folder_that_another_process_writes_is_read_only(place: Place) -> None:
    async with await anyio.open_process([sys.executable, "-c", HOLD, str(place.path)]) as holder:
        assert holder.stdout is not None
        assert (await holder.stdout.receive()).startswith(b"True")
        with pytest.raises(StoreLocked, match=str(holder.pid)):
            await place.append(1, after=0)
        assert await place.store.logs.read_log(KIND, "obj-1") is not None
        holder.kill()
        await holder.wait()
    assert await place.append(1, after=0)


@pytest.mark.requirement("opt.storage.file-name")
def test_the_name_of_the_contract_is_kept() -> None:
    assert log_file_name("obj-123") == NAME
    assert log_id_of(NAME) == "obj-123"


@given(st.text(max_size=30), st.text(max_size=30))
def test_every_id_has_a_safe_name_of_its_own(one: str, two: str) -> None:
    name = log_file_name(one)
    assert log_id_of(name) == one
    assert (name == log_file_name(two)) == (one == two)
    assert Path(name).name == name
    assert name.isascii()
    assert name.isprintable()


@given(st.text(max_size=30))
def test_no_file_name_is_an_error(name: str) -> None:
    log_id = log_id_of(name)
    assert log_id is None or log_file_name(log_id) == name


PIECES = st.sampled_from([b'{"seq":1}', b'{"seq":9}', b"{}", b"\t", b"\n", b"x", b"\xff", b'{"op"'])


@given(st.binary() | st.lists(PIECES).map(b"".join))
def test_any_content_is_parsed_and_complete_lines_read_the_same(content: bytes) -> None:
    text = parse_log(content, NAME)
    numbers = [line.sequence for line in text.lines]
    assert numbers == sorted(set(numbers))
    again = parse_log(content[: text.size], NAME)
    assert again.lines == text.lines
    assert again.size == text.size
    more = content[: text.size] + (b"" if text.ends_line else b"\n") + b'{"op":"more"}\n'
    assert parse_log(more, NAME).lines[:-1] == text.lines
