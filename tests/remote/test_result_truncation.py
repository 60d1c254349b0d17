"""Large results are truncated, and the full text stays readable."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.result_truncation import ResultStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def results(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, limit=10_000, ttl=timedelta(hours=1))


def envelope(*texts: str) -> JsonObject:
    artifacts = [
        {"artifactId": f"{i}", "parts": [{"kind": "text", "text": text}]}
        for i, text in enumerate(texts)
    ]
    return {
        "ok": True,
        "summary": {"message_text": "".join(texts), "artifacts": artifacts},
        "raw": artifacts,
    }


def test_a_result_within_the_limit_is_unchanged(results: ResultStore, tmp_path: Path) -> None:
    whole = envelope("short")
    assert results.truncate(whole, "me") is whole
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("remote.large.cut", "remote.large.owner")
def test_a_long_text_is_cut_and_its_owner_can_read_the_rest(results: ResultStore) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    fitted = results.truncate(envelope(text), "me")
    assert len(msgspec.json.encode(fitted)) < 12_000
    part = fitted["summary"]["artifacts"][0]["parts"][0]
    reference = part["artifact_ref"]
    assert f"GET /results/{reference['ref']}?from=" in reference["read"]
    assert reference["ref"] in fitted["summary"]["message_text"]
    read = b""
    while len(read) < reference["total_bytes"]:
        piece = results.read(reference["ref"], "me", len(read), 7_000)
        assert piece is not None
        assert piece[1] == reference["total_bytes"]
        read += piece[0]
    assert read.decode() == text
    assert results.read(reference["ref"], "somebody else", 0, 10) is None


def many(count: int, part: JsonObject) -> JsonObject:
    artifacts = [{"artifactId": f"{i}", "parts": [part]} for i in range(count)]
    task = {"kind": "task", "id": "t-1", "artifacts": artifacts}
    return {"ok": True, "summary": {"message_text": "outcome", "artifacts": artifacts}, "raw": task}


@pytest.mark.parametrize(
    "whole",
    [
        many(1, {"kind": "data", "data": {"rows": [["a", 1]] * 20_000}}),
        many(5_000, {"kind": "text", "text": "short"}),
        many(300, {"kind": "text", "text": "x" * 300}),
    ],
)
def test_a_large_member_without_long_texts_is_replaced_by_a_reference(
    results: ResultStore, whole: JsonObject
) -> None:
    fitted = results.truncate(whole, "me")
    assert len(msgspec.json.encode(fitted)) < 12_000
    assert fitted["summary"]["message_text"] == "outcome"
    kept = fitted["raw"]["artifact_ref"]
    (shown,) = fitted["summary"]["artifacts"]
    for reference, expected in (
        (kept, whole["raw"]),
        (shown["artifact_ref"], whole["summary"]["artifacts"]),
    ):
        assert f"GET /results/{reference['ref']}?from=0" in reference["read"]
        piece = results.read(reference["ref"], "me", 0, reference["total_bytes"])
        assert piece is not None
        assert msgspec.json.decode(piece[0]) == expected


@pytest.mark.parametrize(
    "reference", ["", "res_x", "../../etc/passwd", "res_" + "a" * 30, "res_" + "/" * 30]
)
def test_an_unknown_reference_finds_nothing(results: ResultStore, reference: str) -> None:
    assert results.read(reference, "me", 0, 10) is None


def test_expired_results_are_deleted(tmp_path: Path) -> None:
    results = ResultStore(tmp_path, limit=10, ttl=timedelta(hours=1))
    old, young = results.store("a", "me"), results.store("b", "me")
    for reference, age in ((old, 7200), (young, 60)):
        (path,) = tmp_path.glob(f"*/{reference}")
        os.utime(path, (NOW.timestamp() - age,) * 2)
    assert results.delete_expired(NOW) == 1
    assert results.read(old, "me", 0, 1) is None
    assert results.read(young, "me", 0, 1) is not None


@settings(max_examples=50)
@given(texts=st.lists(st.text(max_size=30).map(lambda text: text * 500), min_size=1, max_size=5))
def test_any_envelope_stays_json_and_keeps_its_shape(
    results: ResultStore, texts: list[str]
) -> None:
    fitted = results.truncate(envelope(*texts), "me")
    assert msgspec.json.decode(msgspec.json.encode(fitted)) == fitted
    assert [one["artifactId"] for one in fitted["raw"]] == [str(i) for i in range(len(texts))]
