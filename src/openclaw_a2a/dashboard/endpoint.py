"""The dashboard's HTTP endpoint: pages, their JSON twins, live updates, actions and signing in.

A page is a read model and a template. A browser gets the template filled in, every other client the
read model as JSON. An action is a POST of a user who may act, from a page of this dashboard.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from openclaw_a2a.auth.dashboard_sessions import (
    DashboardAuthenticator,
    DashboardUser,
    session_cookie,
)
from openclaw_a2a.auth.peers import await_identity
from openclaw_a2a.dashboard.live import LivePages, PageKey, PartFrames, part_version
from openclaw_a2a.dashboard.requests import (
    ActionHandler,
    ActionRequest,
    ActionResult,
    Download,
    PageRequest,
    ReadConflict,
    ReadDownload,
    ReadPage,
)
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import NO_STORE, Header, HttpRequest, error_headers
from openclaw_a2a.http.rate_limit import RequestAdmission
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.http.router import Router, method_not_allowed
from openclaw_a2a.http.sse_stream import EventStream, SseStreams, last_event_id
from openclaw_a2a.model.errors import (
    ChangedMeanwhile,
    GatewayError,
    ParseFailed,
    RouteNotFound,
    Unauthenticated,
)
from openclaw_a2a.model.ids import JsonObject, PeerName, TaskId
from openclaw_a2a.model.session_keys import OWN_CALLERS
from openclaw_a2a.protocol.errors import http_status

if TYPE_CHECKING:
    from openclaw_a2a.dashboard.rendering import Renderer

DASHBOARD_PREFIX = "/dashboard"
LOGIN = f"{DASHBOARD_PREFIX}/login"
_LOGOUT = f"{DASHBOARD_PREFIX}/logout"
_LIVE = f"{DASHBOARD_PREFIX}/live"
_HTML = b"text/html; charset=utf-8"
_FORM = "application/x-www-form-urlencoded"
_MAX_FORM_BYTES = 256 * 1024
_TYPES = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SAFETY: list[Header] = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: browsers then send the origin of our own forms as `null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_SANDBOX: Header = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; sandbox",
)
_KEEP: Header = (b"cache-control", b"public, max-age=31536000, immutable")


class _Page(NamedTuple):
    read: ReadPage
    template: str
    section: str
    is_task: bool = False
    is_live: bool = True


class _Action(NamedTuple):
    handler: ActionHandler
    max_bytes: int
    read_conflict: ReadConflict | None = None
    template: str = ""


class _DownloadRoute(NamedTuple):
    read: ReadDownload


class Dashboard:
    """Serves the pages that were added."""

    def __init__(
        self,
        authenticator: DashboardAuthenticator,
        engines: Collection[Engine],
        supervisor: Supervisor,
        *,
        admission: RequestAdmission,
        streams: SseStreams,
        bodies: RequestBodies,
        audit: AuditLog,
        version: str,
        is_https: bool = False,
    ) -> None:
        """`is_https`: other machines reach the gateway by https only."""
        self._authenticator = authenticator
        self._admission = admission
        self._streams = streams
        self._bodies = bodies
        self._audit = audit
        self._version = version
        self._is_https = is_https
        self._router = Router[_Page | _Action | _DownloadRoute]()
        self._made: Renderer | None = None
        self._live = LivePages(engines, self._make_part, supervisor)

    def add_page(
        self,
        path: str,
        template: str,
        section: str,
        read: ReadPage,
        *,
        is_task: bool = False,
        is_live: bool = True,
    ) -> None:
        """Add a page. `section` is the entry of the menu; `is_task`: it is about one task.

        A page that is not live is a form: input must not be overwritten by an update.
        """
        self._add_readable(path, _Page(read, template, section, is_task, is_live))

    def add_action(
        self,
        path: str,
        handler: ActionHandler,
        *,
        max_bytes: int = _MAX_FORM_BYTES,
        read_conflict: ReadConflict | None = None,
        template: str = "",
    ) -> None:
        """Add an action; `max_bytes` limits its form.

        What `read_conflict` reads is shown, as `template`, to a browser whose form is about
        something that was changed meanwhile.
        """
        self._router.add_route("POST", path, _Action(handler, max_bytes, read_conflict, template))

    def add_download(self, path: str, read: ReadDownload) -> None:
        """Add content that is not a page."""
        self._add_readable(path, _DownloadRoute(read))

    def _add_readable(self, path: str, route: _Page | _DownloadRoute) -> None:
        for method in ("GET", "HEAD"):
            self._router.add_route(method, path, route)

    @property
    def routes(self) -> Sequence[tuple[str, str]]:
        """The method and the path of every page, action and download."""
        return list(self._router.routes)

    # ---------------------------------------------------------------- requests

    async def redirect_home(self, request: HttpRequest) -> None:
        """Lead a browser that opens the address of the gateway to the first page."""
        await self._redirect(request, DASHBOARD_PREFIX)

    async def serve(self, request: HttpRequest) -> None:
        """Respond to one request."""
        request.response_headers.extend(_SAFETY)
        user: DashboardUser | None = None
        try:
            if request.path.startswith(f"{DASHBOARD_PREFIX}/static/"):
                await self._send_static(request)
            elif request.path == LOGIN:
                await self._sign_in(request)
            else:
                user = await await_identity(self._authenticator.identify, request)
                await self._serve_user(request, user)
        except GatewayError as error:
            await self._respond_error(request, error, user)

    async def _serve_user(self, request: HttpRequest, user: DashboardUser) -> None:
        request.caller = user.name
        if user.name not in OWN_CALLERS:
            await self._admission.admit(PeerName(user.name))
        if request.path == _LIVE:
            _check_method(request, "GET")
            await self._send_live(request, user)
            return
        if request.path == _LOGOUT:
            _check_method(request, "POST")
            form = await self._read_form(request)
            self._authenticator.check_same_site(request, user, form.get("csrf", ""))
            self._authenticator.sign_out(request)
            await self._redirect(request, LOGIN, cookie=(self._cookie(request, ""),))
            return
        path = request.path.rstrip("/")
        found = self._router.find(request.method, path)
        if found is None:
            text = f"there is no page {request.path[:200]}"
            raise self._router.method_error(request.method, path) or RouteNotFound(text)
        route, segments = found
        asked = PageRequest(segments, request.query())
        if isinstance(route, _Page):
            await self._send_page(request, user, route, asked)
        elif isinstance(route, _Action):
            await self._act(request, user, route, segments)
        else:
            await self._send_download(request, await route.read(asked))

    async def _send_page(
        self, request: HttpRequest, user: DashboardUser, page: _Page, asked: PageRequest
    ) -> None:
        view = await page.read(asked)
        if not wants_html(request):
            await request.respond(200, msgspec.json.encode(view), headers=[NO_STORE])
            return
        part = self._renderer.render_part(page.template, view, may_act=user.may_act)
        # A part of a page: for the panel beside another one.
        if b"hx-request" in request.headers:
            await request.respond(200, part, media_type=_HTML, headers=[NO_STORE])
            return
        raw = request.query_string
        address = request.path + (f"?{raw.decode('latin-1')}" if raw else "")
        members: JsonObject = {
            "page": view,
            "may_act": user.may_act,
            "user": user,
            "section": page.section,
            "part": part.decode(),
        }
        if page.is_live:
            members["live"] = {"at": address, "seen": str(part_version(part))}
        body = self._renderer.render_page(page.template, members)
        await request.respond(200, body, media_type=_HTML, headers=[NO_STORE])

    async def _make_part(self, key: PageKey) -> bytes:
        """The live part of an open page. Raises: GatewayError."""
        page, asked = self._find_page(key.address)
        view = await page.read(asked)
        if key.as_json:
            return msgspec.json.encode(view)
        return self._renderer.render_part(page.template, view, may_act=key.may_act)

    async def _send_live(self, request: HttpRequest, user: DashboardUser) -> None:
        query = request.query()
        address, seen = query.get("at", ""), last_event_id(request)
        page, asked = self._find_page(address)
        if seen is None and query.get("seen", "").isdecimal():
            seen = int(query["seen"][:18])
        as_json = query.get("as") == "json"
        task_id = TaskId(asked.segments[0]) if page.is_task else None
        # With another order of the query the same page would be made twice: that is all.
        key = PageKey(address, user.may_act or as_json, as_json, task_id)
        await self._streams.serve(
            request,
            partial(self._open_live, key, seen),
            PartFrames(),
            check=self._authenticator.check,
        )

    async def _open_live(self, key: PageKey, seen: int | None) -> EventStream:
        return self._live.open(key, seen=seen)

    def _find_page(self, address: str) -> tuple[_Page, PageRequest]:
        """The page at an address. Raises: RouteNotFound."""
        parts = urlsplit(address[:4096])
        found = self._router.find("GET", parts.path.rstrip("/"))
        if found is None or not isinstance(found[0], _Page) or not found[0].is_live:
            raise RouteNotFound(f"there is no live page {address[:200]}")
        return found[0], PageRequest(found[1], dict(parse_qsl(parts.query)))

    async def _act(
        self,
        request: HttpRequest,
        user: DashboardUser,
        action: _Action,
        segments: tuple[str, ...],
    ) -> None:
        # A read-only user may not upload megabytes.
        form = await self._read_form(request, action.max_bytes if user.may_act else _MAX_FORM_BYTES)
        self._authenticator.check_action(request, user, form.get("csrf", ""))
        asked = ActionRequest(segments, form, user.name, request.client_address, self._audit)
        try:
            result = await self._run_audited(action.handler, asked)
        except ChangedMeanwhile as error:
            if action.read_conflict is None or not wants_html(request):
                raise
            request.log_refusal(error)
            view = await action.read_conflict(asked)
            part = self._renderer.render_part(action.template, view, may_act=user.may_act)
            # In the place of the form, not among the notices, which disappear.
            headers = [NO_STORE, (b"hx-retarget", b"#edit"), (b"hx-reswap", b"outerHTML")]
            status = http_status(error, for_rpc=False)
            await request.respond(status, part, media_type=_HTML, headers=headers)
            return
        # Actions on anything but a task notify no observer: without this, pages show them seconds
        # later.
        self._live.refresh()
        if not wants_html(request):
            await request.respond(200, msgspec.json.encode(result), headers=[NO_STORE])
        elif b"hx-request" not in request.headers:
            await self._redirect(request, result.location)
        else:
            await self._respond_done(request, result, leads_on=form.get("follow") == "yes")

    async def _run_audited(self, handler: ActionHandler, asked: ActionRequest) -> ActionResult:
        try:
            return await handler(asked)
        finally:
            # Before the answer: an action that was reported as done is in the log after a crash.
            await self._audit.flush(sync=True)

    async def _respond_done(
        self, request: HttpRequest, result: ActionResult, *, leads_on: bool
    ) -> None:
        headers = [NO_STORE]
        if leads_on:
            headers.append((b"hx-redirect", result.location.encode("ascii")))
        body = self._renderer.render_page("notice.html", {"result": result, "error": None})
        await request.respond(200, body, media_type=_HTML, headers=headers)

    async def _read_form(
        self, request: HttpRequest, max_bytes: int = _MAX_FORM_BYTES
    ) -> dict[str, str]:
        """The members of a form, or of a JSON object of strings. Raises: ParseFailed, ..."""
        if not request.has_body():
            return {}
        kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind != _FORM:
            request.require_json()
        body = await request.read_body(max_bytes, self._bodies)
        request.release_body()
        try:
            if kind == _FORM:
                return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
            return msgspec.json.decode(body, type=dict[str, str])
        except (ValueError, RecursionError):
            raise ParseFailed("the body is no form and no JSON object of strings") from None

    async def _send_download(self, request: HttpRequest, found: Download) -> None:
        headers = [NO_STORE, (b"content-disposition", _disposition(found.filename))]
        # Opened by itself it is no page of ours: it runs nothing, and has no origin.
        request.response_headers[:] = [
            one for one in request.response_headers if one[0] != _SANDBOX[0]
        ]
        request.response_headers.append(_SANDBOX)
        media_type = found.media_type.encode("ascii", "replace")
        await request.respond(200, found.content, media_type=media_type, headers=headers)

    # ---------------------------------------------------------------- signing in

    async def _sign_in(self, request: HttpRequest) -> None:
        _check_method(request, "GET", "HEAD", "POST")
        if request.method == "POST":
            form = await self._read_form(request)
            session = self._authenticator.sign_in_with_token(request, form.get("token", ""))
        # Not with HEAD, which must not use up the code.
        elif request.method == "GET" and (code := request.query().get("code")):
            session = self._authenticator.sign_in_with_code(request, code)
        else:
            await self._send_login(request)
            return
        await self._redirect(request, DASHBOARD_PREFIX, cookie=(self._cookie(request, session),))

    async def _send_login(self, request: HttpRequest) -> None:
        body = self._renderer.render_page("login.html", {"problem": "", "user": None})
        await request.respond(200, body, media_type=_HTML, headers=[NO_STORE])

    def _cookie(self, request: HttpRequest, session: str) -> Header:
        age = "" if session else "; Max-Age=0"
        secure = "; Secure" if self._is_https else ""
        name = session_cookie(request)
        text = f"{name}={session}; Path={DASHBOARD_PREFIX}; HttpOnly; SameSite=Strict{secure}{age}"
        return b"set-cookie", text.encode("ascii")

    # ---------------------------------------------------------------- responses

    @property
    def _renderer(self) -> "Renderer":
        if self._made is None:
            # With the first page: the templates are slow to import, and many gateways show none.
            from openclaw_a2a.dashboard.rendering import Renderer

            self._made = Renderer(self._version)
        return self._made

    async def _redirect(
        self, request: HttpRequest, location: str, *, cookie: tuple[Header, ...] = ()
    ) -> None:
        headers = [(b"location", location.encode("ascii")), NO_STORE, *cookie]
        await request.respond(303, b"", media_type=_HTML, headers=headers)

    async def _send_static(self, request: HttpRequest) -> None:
        from openclaw_a2a.dashboard.rendering import read_static

        name = request.path.rpartition("/")[2]
        content = read_static(name) if request.path.count("/") == 3 else None
        if content is None:
            raise RouteNotFound(f"there is no {request.method} {request.path[:200]} here")
        _check_method(request, "GET", "HEAD")
        media_type = _TYPES.get(name.rpartition(".")[2], b"application/octet-stream")
        await request.respond(200, content, media_type=media_type, headers=[_KEEP])

    async def _respond_error(
        self, request: HttpRequest, error: GatewayError, user: DashboardUser | None
    ) -> None:
        if not wants_html(request):
            await request.respond_error(error, show_faults=True)
            return
        request.log_refusal(error)
        status = http_status(error, for_rpc=False)
        if b"hx-request" in request.headers:
            body = self._renderer.render_page("notice.html", {"result": None, "error": error})
        elif isinstance(error, Unauthenticated) or request.path == LOGIN:
            has_tried = error.has_credentials if isinstance(error, Unauthenticated) else True
            problem = error.message if has_tried else ""
            body = self._renderer.render_page("login.html", {"problem": problem, "user": None})
        else:
            members: JsonObject = {"error": error, "status": status, "user": user, "section": ""}
            body = self._renderer.render_page("error.html", members)
        headers = [NO_STORE, *error_headers(error)]
        await request.respond(status, body, media_type=_HTML, headers=headers)


def wants_html(request: HttpRequest) -> bool:
    """True for browsers: they name text/html, and other clients do not."""
    return "text/html" in (request.header(b"accept") or "")


def _check_method(request: HttpRequest, *allowed: str) -> None:
    """Refuse other methods of a path that is no page. Raises: MethodNotAllowed."""
    if request.method not in allowed:
        raise method_not_allowed(request.method, request.path, allowed)


def _disposition(filename: str) -> bytes:
    """As an attachment: pages still show pictures, and nothing is opened by itself."""
    return f"attachment; filename*=UTF-8''{quote(filename, safe='')}".encode("ascii")
