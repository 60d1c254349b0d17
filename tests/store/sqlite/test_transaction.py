"""The Bloom filter over message keys: no stored message is missed, few new ones are looked up."""

from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.store.sqlite.transaction import BloomFilter

_KEYS = st.tuples(st.text(max_size=8), st.text(max_size=8), st.text(max_size=40))


@given(loaded=st.lists(_KEYS, max_size=20), added=st.lists(_KEYS, max_size=20))
def test_an_added_key_is_always_found(
    loaded: list[tuple[str, str, str]], added: list[tuple[str, str, str]]
) -> None:
    known = BloomFilter(loaded)
    for key in added:
        known.add(key)
    assert all(known.may_contain(key) for key in [*loaded, *added])


def test_few_new_messages_are_looked_up_in_vain() -> None:
    known = BloomFilter(("p", "a", f"old-{number}") for number in range(20_000))
    asked = sum(known.may_contain(("p", "a", f"new-{number}")) for number in range(20_000))
    assert asked < 200
