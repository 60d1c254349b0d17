"""What every store promises that searches texts itself."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.contracts.conftest import open_harness
from tests.contracts.store_samples import ALICE, ALICE_ELSEWHERE, BOB, Draft, time_at

from openclaw_a2a.model.ids import AccountId, PeerName, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Store, SupportsTaskSearch, TaskMatches, TaskSearch
from openclaw_a2a.store.contents import LARGE_BYTES
from openclaw_a2a.store.postgres import search as postgres_search
from openclaw_a2a.store.sqlite import search as sqlite_search

TEXTS = {
    "t-plain": "Paint the fence, please",
    "t-json": 'the "Zäune" at\nc:\\paint_1 are 100% done 🦞',
    "t-wild": "pa%nt and pa_nt",
    "t-null": "a zero \x01 and \\303\\244 as text",
}


@pytest.fixture(params=["sqlite", "encrypted", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with open_harness(request, tmp_path) as harness:
        yield harness.store


async def put(store: Store, name: str, text: str, *, scope: Scope = ALICE, at: float = 0) -> None:
    draft = Draft(name, scope=scope, context=f"Context-{name}")
    await store.tasks.submit(draft.submission(at))
    await store.tasks.commit(draft.chunk(text))
    await store.tasks.commit(draft.ended(at=at))


async def search(store: Store, text: str, limit: int = 100, **more: object) -> TaskMatches:
    assert isinstance(store, SupportsTaskSearch)
    with anyio.fail_after(240):
        return await store.search_tasks(TaskSearch(text, limit, **more))


def ids(matches: TaskMatches) -> list[str]:
    return [str(one.head.id) for _, one in matches.found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the fence", ["t-plain"]),
        ("PAINT THE", ["t-plain"]),
        ('the "Zäune" at\nc:\\paint_1', ["t-json"]),
        ('THE "Zäune"', ["t-json"]),
        ("ZÄUNE", []),  # other cases of other letters are not known
        ("🦞", ["t-json"]),
        ("100%", ["t-json"]),
        ("a%t", []),
        ("pa%nt", ["t-wild"]),
        ("pa_nt", ["t-wild"]),
        ("\\303\\244", ["t-null"]),
        ("ä", ["t-json"]),
        ("\x01", ["t-null"]),
        ("context-t-w", ["t-wild"]),
        ("T-PLAIN", ["t-plain"]),
        ("alice", ["t-null", "t-wild", "t-json", "t-plain"]),
        ("agent:main:a2a:alice:context-t-j", ["t-json"]),
        ("", ["t-null", "t-wild", "t-json", "t-plain"]),
        ("no such text", []),
    ],
)
async def test_a_text_is_found_wherever_it_stands(
    store: Store, text: str, expected: list[str]
) -> None:
    for name, content in TEXTS.items():
        await put(store, name, content)
    found = await search(store, text)
    assert ids(found) == expected
    assert (found.next_before, found.looked_back_to) == (None, None)


async def test_a_search_is_narrowed_by_state_caller_account_and_agent(store: Store) -> None:
    await put(store, "t-1", "needle")
    await put(store, "t-2", "needle", scope=BOB)
    await put(store, "t-3", "needle", scope=ALICE_ELSEWHERE)
    draft = Draft("t-4")
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.whole(draft.chunk("needle")))
    assert ids(await search(store, "needle")) == ["t-4", "t-3", "t-2", "t-1"]
    assert ids(await search(store, "needle", principal=PeerName("bob"))) == ["t-2"]
    assert ids(await search(store, "needle", account=AccountId("other"))) == ["t-3"]
    both = frozenset({TaskState.SUBMITTED, TaskState.WORKING})
    assert ids(await search(store, "needle", states=both)) == ["t-4"]
    assert len(ids(await search(store, "needle", agent="main"))) == 4
    assert ids(await search(store, "needle", agent="MAIN")) == []


async def test_pages_of_a_search_follow_each_other_and_the_heads_are_whole(store: Store) -> None:
    names = [f"t-{number}" for number in range(7)]
    for number, name in enumerate(names):
        await put(store, name, "needle" if number % 2 else "hay", at=number)
    first = await search(store, "needle", 2)
    assert ids(first) == ["t-5", "t-3"]
    assert first.next_before == first.found[-1][0]
    assert first.looked_back_to == time_at(3)
    second = await search(store, "needle", 2, before=first.next_before)
    assert ids(second) == ["t-1"]
    assert second.next_before is None
    known = await store.tasks.read_task(None, TaskId("t-1"))
    assert known is not None and second.found[0][1].head == known.head


async def test_a_search_looks_at_so_many_tasks_and_says_where_to_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_search, postgres_search):
        monkeypatch.setattr(module, "_WINDOW", 3)
    monkeypatch.setattr(postgres_search, "_FIRST_SLICE", 2)
    for number in range(8):
        await put(store, f"t-{number}", "needle" if number in (0, 6) else "hay", at=number)
    found, before, looked = list[str](), None, list[object]()
    while True:
        page = await search(store, "needle", before=before)
        found += ids(page)
        looked.append(page.looked_back_to)
        before = page.next_before
        if before is None:
            break
    assert found == ["t-6", "t-0"]
    assert looked == [time_at(5), time_at(2), None]


async def test_a_task_with_large_strings_is_found_by_its_names_only(store: Store) -> None:
    await put(store, "t-large", "needle" + "x" * LARGE_BYTES)
    assert ids(await search(store, "needle")) == []
    assert ids(await search(store, "t-larg")) == ["t-large"]


async def test_an_empty_store_has_no_matches(store: Store) -> None:
    assert await search(store, "needle") == TaskMatches(())
