"""What the operator changes is in the audit log, once and under the right name, whatever happens.

The gateway is killed in the moment its answer is there: an action that was answered has its entry.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.test_damaged_rows import TASKS, send

from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import TokenKind, TokenStore

pytestmark = pytest.mark.slow
Json = Any
DEADLINE_S = 240.0


def post(gateway: Any, path: str, body: Json, token: str) -> Json:
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    request = urllib.request.Request(gateway.url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
        return json.load(response)


def entries(data: Path, event: str) -> list[Json]:
    lines = (data / "audit.jsonl").read_text("utf-8").splitlines()
    return [one for one in map(json.loads, lines) if one["event"] == event]


def cancel(gateway: Any, data: Path) -> str:
    # It has ended: what is refused is in the log as well.
    task = send(gateway.url, "m")
    with pytest.raises(urllib.error.HTTPError):
        post(gateway, f"/operator/tasks/{task}/cancel", {}, read_admin_token(data))
    return "task-canceled"


def make_link(gateway: Any, data: Path) -> str:
    post(gateway, "/operator/dashboard/link", {}, read_admin_token(data))
    return "operator-action"


def send_message(gateway: Any, data: Path) -> str:
    post(gateway, "/dashboard/agents/default/send", {"text": "hi"}, read_admin_token(data))
    return "operator-action"


def make_token(gateway: Any, data: Path) -> str:
    form = {"name": "bob", "scope": "a2a"}
    post(gateway, "/dashboard/callers", form, read_admin_token(data))
    return "token-created"


@pytest.mark.parametrize("act", [cancel, make_link, send_message, make_token])
def test_an_action_that_was_answered_has_its_entry_when_the_gateway_is_killed(
    start_gateway: Any, tmp_path: Path, act: Callable[[Any, Path], str]
) -> None:
    data = tmp_path / "data"
    gateway = start_gateway({**TASKS, "data": str(data)})
    event = act(gateway, data)
    gateway.kill()
    [entry] = entries(data, event)
    assert (entry["who"], entry["from"]) == ("operator", "127.0.0.1")


def test_tokens_that_are_changed_in_the_dashboard_have_one_entry_with_who_did_it(
    start_gateway: Any, tmp_path: Path
) -> None:
    """There was a second one, which said that a command of the operator had done it."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    store = TokenStore(data)
    root = store.create("root", TokenKind.PEER, scopes=[Scope.ADMIN])
    before = len(entries(data, "token-created"))
    gateway = start_gateway({**TASKS, "data": str(data)})
    post(gateway, "/dashboard/callers", {"name": "bob", "scope": "a2a"}, root)
    [made] = [one for one in store.list_tokens() if one.name == "bob"]
    post(gateway, f"/dashboard/callers/{made.id}/revoke", {}, root)
    gateway.stop()
    [created] = entries(data, "token-created")[before:]
    [revoked] = entries(data, "token-revoked")
    for entry in (created, revoked):
        assert (entry["who"], entry["from"], entry["target"]) == ("root", "127.0.0.1", "bob")
