"""The admin endpoint accepts the operator on the gateway's own machine, and nobody else."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import Request
from tests.server.admin.asking_agent import AskingAgent
from tests.server.admin.conftest import OpenGateway

from openclaw_a2a.auth.admin_token import ensure_admin_token, read_admin_token

PAGE = "/operator/approvals"
Token = Callable[[], str]


def request(token: str, *, client: str = "127.0.0.1", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", PAGE, {"authorization": f"Bearer {token}", **named}, client=client)


async def test_the_operator_is_identified_by_the_token_in_the_data_folder(
    open_gateway: OpenGateway, token: Token
) -> None:
    http = await open_gateway({"main": AskingAgent()})
    response = await http.request(request(token()))
    assert (response.status, response.json) == (200, {"approvals": [], "troubles": []})
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "said", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic {}", "Bearer {}x", "{}"]
)
async def test_without_a_valid_token_the_response_is_401_with_a_challenge(
    open_gateway: OpenGateway, token: Token, said: str
) -> None:
    http = await open_gateway({"main": AskingAgent()})
    response = await http.get(PAGE, authorization=said.format(token()))
    assert response.status == 401
    assert response.json["error"]["code"] == "unauthenticated"
    assert token() not in response.body.decode()
    assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"x_forwarded_for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
    ],
)
async def test_a_web_page_or_a_proxy_is_refused_even_with_the_token(
    open_gateway: OpenGateway, token: Token, headers: dict[str, str]
) -> None:
    http = await open_gateway({"main": AskingAgent()})
    response = await http.request(request(token(), **headers))
    assert (response.status, response.json["error"]["code"]) == (403, "not-allowed")


async def test_another_machine_is_refused_even_with_the_token(
    open_gateway: OpenGateway, token: Token
) -> None:
    http = await open_gateway({"main": AskingAgent()})
    response = await http.request(request(token(), client="192.0.2.7"))
    assert (response.status, response.json["error"]["code"]) == (403, "not-allowed")


async def test_the_token_of_a_peer_is_no_token_of_the_operator(
    open_gateway: OpenGateway, token: Token, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "alice.token").write_text("a-long-token-of-alice", encoding="ascii")
    peers = {"channels.a2a.security.peers.alice": {"tokens": ["file:alice.token"]}}
    http = await open_gateway({"main": AskingAgent()}, settings=peers)
    assert (await http.request(request("a-long-token-of-alice"))).status == 403
    assert (await http.request(request(token()))).status == 200


async def test_an_unknown_path_is_404_in_the_same_format(
    open_gateway: OpenGateway, token: Token
) -> None:
    http = (await open_gateway({"main": AskingAgent()})).with_headers(
        authorization=f"Bearer {token()}"
    )
    for response in (
        await http.get("/operator/nothing"),
        await http.get("/operator/"),
    ):
        assert (response.status, response.json["error"]["code"]) == (404, "route-not-found")


@pytest.mark.requirement("inbound.account.method-unknown")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", PAGE, "GET"),
        ("PUT", "/operator/tasks", "GET"),
        ("GET", "/operator/tasks/x/cancel", "POST"),
    ],
)
async def test_other_methods_of_a_path_are_405_with_those_it_has(
    open_gateway: OpenGateway, token: Token, method: str, path: str, allowed: str
) -> None:
    http = await open_gateway({"main": AskingAgent()})
    named = {"authorization": f"Bearer {token()}"}
    response = await http.request(Request(method, path, named))
    assert (response.status, response.headers.get("allow")) == (405, allowed)
    assert response.json["error"]["code"] == "method-not-allowed"
    assert (await http.request(Request(method, path))).status == 401


async def test_a_refusal_is_logged_with_the_operator_as_its_caller(
    open_gateway: OpenGateway, token: Token
) -> None:
    http = await open_gateway({"main": AskingAgent()})
    with capture_logs() as logged:
        await http.get("/operator/nothing", authorization=f"Bearer {token()}")
        await http.get("/operator/nothing", authorization="Bearer wrong")
    refused = [one["caller"] for one in logged if one["event"] == "request.refused"]
    assert refused == ["operator", None]


async def test_a_body_is_json_and_small(open_gateway: OpenGateway, token: Token) -> None:
    http = (await open_gateway({"main": AskingAgent()})).with_headers(
        authorization=f"Bearer {token()}"
    )
    for body, status in [(b"[]", 400), (b"{", 400), (b'{"allow": 1}', 400), (b"x" * 70_000, 413)]:
        response = await http.post(f"{PAGE}/one", body, content_length=str(len(body)))
        assert response.status == status
        assert set(response.json["error"]) >= {"code", "message"}


async def test_an_unwritable_data_folder_disables_only_the_admin_endpoint(
    open_gateway: OpenGateway, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    folder = {"data": str(tmp_path / "file" / "data")}
    http = await open_gateway({"main": AskingAgent()}, settings=folder)
    response = await http.request(request("a" * 43))
    assert (response.status, response.json["error"]["code"]) == (403, "not-allowed")
    assert (await http.get("/readyz")).status == 200


def test_the_token_stays_the_same_from_start_to_start(tmp_path: Path) -> None:
    token = ensure_admin_token(tmp_path / "data")
    assert ensure_admin_token(tmp_path / "data") == token == read_admin_token(tmp_path / "data")
    mode = (tmp_path / "data" / "operator.token").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert [one.name for one in (tmp_path / "data").iterdir()] == ["operator.token"]


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    token = ensure_admin_token(tmp_path)
    (tmp_path / "operator.token").chmod(0o644)
    assert ensure_admin_token(tmp_path) != token
    assert stat.S_IMODE((tmp_path / "operator.token").stat().st_mode) == 0o600


def test_a_symbolic_link_instead_of_the_token_file_is_replaced(tmp_path: Path) -> None:
    ensure_admin_token(tmp_path / "elsewhere")
    (tmp_path / "operator.token").symlink_to(tmp_path / "elsewhere" / "operator.token")
    assert ensure_admin_token(tmp_path) != read_admin_token(tmp_path / "elsewhere")
    assert not (tmp_path / "operator.token").is_symlink()


@given(content=st.binary(max_size=100))
def test_arbitrary_content_of_the_token_file_is_replaced_by_a_token(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "operator.token").write_bytes(content)
    (folder / "operator.token").chmod(0o600)
    assert ensure_admin_token(folder) == read_admin_token(folder)
