"""Query parameters: the same requests as JSON-RPC, and every problem at once."""

from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import InvalidParams
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.protocol.requests import GetRequest, ListRequest, PushListRequest
from openclaw_a2a.protocol.v1 import (
    decode_get_query,
    decode_list_query,
    decode_push_list_query,
)

names = st.sampled_from(
    [
        *("id", "contextId", "status", "pageSize", "pageToken", "historyLength", "tenant"),
        *("statusTimestampAfter", "includeArtifacts", "other"),
    ]
)


def test_a_get_query_is_read():
    assert decode_get_query({}, task_id="t") == GetRequest(id="t")
    assert decode_get_query({"historyLength": "0", "id": "x"}, task_id="t") == GetRequest(
        id="t", history_length=0
    )


def test_a_list_query_is_read():
    assert decode_list_query({"status": "", "statusTimestampAfter": ""}) == ListRequest()
    assert decode_list_query(
        {
            "contextId": "c",
            "status": "TASK_STATE_WORKING",
            "pageSize": "7",
            "pageToken": "12",
            "historyLength": "2",
            "statusTimestampAfter": "2026-01-01T00:00:00Z",
            "includeArtifacts": "true",
            "unknown": "x",
        }
    ) == ListRequest(
        context_id="c",
        state=TaskState.WORKING,
        page_size=7,
        page_token="12",
        history_length=2,
        status_since=datetime(2026, 1, 1, tzinfo=UTC),
        include_artifacts=True,
    )


def test_a_push_list_query_is_read():
    assert decode_push_list_query({"pageSize": "3"}, task_id="t") == PushListRequest(
        task_id="t", page_size=3
    )


def test_every_problem_of_a_query_is_reported_at_once():
    query = {
        "pageSize": "101",
        "historyLength": "-1",
        "status": "working",
        "includeArtifacts": "yes",
        "statusTimestampAfter": "soon",
    }
    with pytest.raises(InvalidParams) as caught:
        decode_list_query(query)
    assert {problem.path for problem in caught.value.problems} == set(query)


@pytest.mark.parametrize("text", ["", "x", "1.5", "²", "9" * 30, "--1", " 1"])
def test_a_page_size_that_is_no_number_is_refused(text):
    with pytest.raises(InvalidParams):
        decode_list_query({"pageSize": text})


def test_a_query_that_is_no_unicode_is_refused():
    with pytest.raises(InvalidParams, match="UTF-8"):
        decode_list_query({"contextId": "\ud800"})


@given(st.dictionaries(names, st.text(st.characters(), max_size=8), max_size=5))
def test_arbitrary_queries_are_read_or_refused(query):
    for decode in (decode_list_query, partial(decode_get_query, task_id="t")):
        try:
            decode(query)
        except InvalidParams as refusal:
            assert refusal.problems
