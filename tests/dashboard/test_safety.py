"""Who may look and who may act: links, sessions, tokens, other sites, read-only."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conformance.asgi_client import Request
from tests.dashboard.conftest import Browser, OpenDashboard, Setup, post_form

from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import TokenKind, TokenStore

EVIL = "http://evil.example"


async def test_nobody_sees_a_page_without_signing_in(setup: Setup) -> None:
    for page in ("/dashboard", "/dashboard/tasks", "/dashboard/live?at=/dashboard"):
        refused = await setup.anyone.get(page)
        assert (refused.status, refused.json["error"]["code"]) == (401, "unauthenticated")
    html = await setup.anyone.get("/dashboard", accept="text/html")
    assert html.status == 401
    assert b"openclaw-a2a dashboard open" in html.body


async def test_a_link_signs_in_once(setup: Setup) -> None:
    link = await setup.link()
    first = await setup.anyone.get(link, accept="text/html")
    assert (first.status, first.headers["location"]) == (303, "/dashboard")
    cookie = first.headers["set-cookie"]
    assert "; HttpOnly; SameSite=Strict" in cookie
    assert "; Path=/dashboard" in cookie
    second = await setup.anyone.get(link, accept="text/html")
    assert second.status == 401
    assert "set-cookie" not in second.headers
    assert (await setup.anyone.get("/dashboard/login?code=guess")).status == 401


async def test_a_link_works_on_this_machine_only(setup: Setup) -> None:
    link = await setup.link()
    far = await setup.anyone.request(Request("GET", link, client="192.0.2.7"))
    proxied = await setup.anyone.get(link, x_forwarded_for="192.0.2.7")
    renamed = await setup.anyone.get(link, host="evil.example")
    assert {far.status, proxied.status, renamed.status} == {403}
    # None of them has used it up.
    assert (await setup.anyone.get(link)).status == 303


async def test_a_session_of_a_link_works_on_this_machine_only(setup: Setup) -> None:
    browser = await setup.sign_in()
    far = await browser.http.request(Request("GET", "/dashboard", client="192.0.2.7"))
    renamed = await browser.http.get("/dashboard", host="evil.example")
    assert {far.status, renamed.status} == {403}
    assert (await browser.get("/dashboard")).status == 200


async def test_signing_out_ends_the_session(setup: Setup) -> None:
    browser = await setup.sign_in()
    refused = await post_form(browser.http, "/dashboard/logout", {"csrf": "wrong"})
    assert refused.status == 403
    left = await post_form(browser.http, "/dashboard/logout", {"csrf": browser.csrf})
    assert left.status == 303
    assert (await browser.get("/dashboard")).status == 401


def create_token(folder: Path, name: str, *scopes: Scope) -> str:
    return TokenStore(folder / "data").create(name, TokenKind.PEER, scopes=scopes)


async def sign_in_with(setup: Setup, token: str) -> Browser:
    response = await post_form(setup.anyone, "/dashboard/login", {"token": token})
    assert response.status == 303, response.body
    http = setup.anyone.with_headers(cookie=response.headers["set-cookie"].partition(";")[0])
    page = await Browser(http).get("/dashboard")
    assert page.status == 200
    csrf = page.body.decode().partition('"X-CSRF-Token":"')[2].partition('"')[0]
    return Browser(http, csrf)


async def test_a_token_for_the_dashboard_may_look_and_one_for_admin_may_act(
    setup: Setup, tmp_path: Path
) -> None:
    task_id = await setup.start()
    await setup.agent.next_run()
    looking = await sign_in_with(setup, create_token(tmp_path, "viewer", Scope.DASHBOARD))
    html = (await looking.get(f"/dashboard/tasks/{task_id}")).body.decode()
    assert "read-only" in html
    assert "Cancel task" not in html
    refused = await looking.act(f"/dashboard/tasks/{task_id}/cancel")
    assert refused.status == 403
    acting = await sign_in_with(setup, create_token(tmp_path, "boss", Scope.ADMIN))
    assert (await acting.act(f"/dashboard/tasks/{task_id}/cancel")).status == 200


async def test_other_tokens_do_not_sign_in(setup: Setup, tmp_path: Path) -> None:
    peer = create_token(tmp_path, "peer", Scope.A2A)
    for token, status in ((peer, 403), ("guess", 401), ("", 401)):
        refused = await post_form(setup.anyone, "/dashboard/login", {"token": token})
        assert refused.status == status
        assert "set-cookie" not in refused.headers


async def test_a_session_ends_with_its_token(setup: Setup, tmp_path: Path) -> None:
    browser = await sign_in_with(setup, create_token(tmp_path, "viewer", Scope.DASHBOARD))
    store = TokenStore(tmp_path / "data")
    [token] = store.list_tokens()
    store.revoke(token.id)
    assert (await browser.get("/dashboard")).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"x_csrf_token": ""},
        {"x_csrf_token": "wrong"},
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8080"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_what_another_site_sends_changes_nothing(
    setup: Setup, headers: Mapping[str, str]
) -> None:
    task_id = await setup.start()
    await setup.agent.next_run()
    browser = await setup.sign_in()
    sent = {"x_csrf_token": browser.csrf, **headers}
    path = f"/dashboard/tasks/{task_id}/cancel"
    refused = await post_form(browser.http, path, {}, **sent)
    assert refused.status == 403
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    assert page["task"]["state"] in ("submitted", "working")
    allowed = await post_form(browser.http, path, {}, x_csrf_token=browser.csrf)
    assert allowed.status == 200


async def test_a_form_of_another_kind_is_refused(setup: Setup) -> None:
    browser = await setup.sign_in()
    refused = await browser.http.post(
        "/dashboard/agents/default/send",
        b"text=hello",
        content_type="text/plain",
        content_length="10",
        x_csrf_token=browser.csrf,
    )
    assert refused.status == 415


async def test_a_read_only_dashboard_shows_everything_and_changes_nothing(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"dashboard.readOnly": True})
    task_id = await setup.start()
    await setup.agent.next_run()
    browser = await setup.sign_in()
    assert (await browser.get(f"/dashboard/tasks/{task_id}")).status == 200
    assert (await browser.act(f"/dashboard/tasks/{task_id}/cancel")).status == 403
    refused = await setup.program.post(
        f"/dashboard/tasks/{task_id}/cancel", b"{}", content_length="2"
    )
    assert refused.status == 403


async def test_pages_forbid_everything_that_they_do_not_need(setup: Setup) -> None:
    browser = await setup.sign_in()
    page = await browser.get("/dashboard")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    html = page.body.decode()
    assert "<script>" not in html
    assert " style=" not in html
    assert " onclick=" not in html
    assert "http://" not in html.replace("http://www.w3.org", "").replace("http://127.0.0.1", "")


async def test_static_files_are_those_of_the_package_and_no_others(setup: Setup) -> None:
    for name in ("dashboard.css", "dashboard.js", "htmx-4.0.1.min.js", "htmx-LICENSE.txt"):
        found = await setup.anyone.get(f"/dashboard/static/{name}")
        assert found.status == 200
        assert "immutable" in found.headers["cache-control"]
    for name in ("../endpoint.py", "..%2fendpoint.py", "", "none.css", "a/dashboard.css"):
        assert (await setup.anyone.get(f"/dashboard/static/{name}")).status == 404


async def test_a_session_lasts_as_long_as_the_settings_say(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"dashboard.sessionSeconds": 0.000001})
    response = await setup.anyone.get(await setup.link())
    http = setup.anyone.with_headers(cookie=response.headers["set-cookie"].partition(";")[0])
    assert (await http.get("/dashboard")).status == 401


async def test_cookies_of_other_programs_on_this_host_do_not_matter(setup: Setup) -> None:
    response = await setup.anyone.get(await setup.link())
    own = response.headers["set-cookie"].partition(";")[0]
    strange = 'prefs={"a":"b;c"}; =; x; ' + own + "; other=1"
    assert (await setup.anyone.get("/dashboard", cookie=strange)).status == 200
