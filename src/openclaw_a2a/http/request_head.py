"""The head of an HTTP request: parsed by `httptools`, and refused where it is not clear.

What another program on the way (a proxy, a cache) may read in another way than this one is refused:
where a request ends, and for which host it is, must have one answer.
"""

import functools
import re
from urllib.parse import unquote

import httptools

from openclaw_a2a.http.asgi import Header, HeadFacts
from openclaw_a2a.model.errors import HeadersTooLarge, InvalidRequest
from openclaw_a2a.model.url_policy import parse_authority

NOT_HTTP = "this is not a valid HTTP/1.1 request"

_SINGLE_HEADERS = (b"host", b"origin", b"content-length", b"transfer-encoding")
"""Headers of which a proxy might look at one line, and we at another."""
_ABSOLUTE_TARGET = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE)
_LENGTH_LINE = b"\r\ncontent-length: "
_MOST_HOST = 300
_MOST_DIGITS = 20
"""Of a length. Python reads no number of thousands of digits, be they all zero."""
_PLAIN_DIGITS = 18
"""Of a length that every parser can hold."""


class RequestHead:
    """The head of one request."""

    __slots__ = (
        "_lines",
        "_parser",
        "body_size",
        "data",
        "expects_continue",
        "facts",
        "has_repeated",
        "headers",
        "is_chunked",
        "is_kept_alive",
        "method",
        "path",
        "query",
        "raw_path",
        "target",
        "version",
    )

    facts: HeadFacts

    def __init__(self, data: bytes, most_headers: int) -> None:
        """Parse a head, with the empty line at its end. Raises: InvalidRequest, HeadersTooLarge."""
        self.data = data
        """The bytes of it."""
        self.target = self.raw_path = self.query = b""
        self.method = self.path = self.version = ""
        self._lines: list[Header] = []
        """The headers as they came; empty without a repeated one: then `headers` has them all."""
        self.headers: dict[bytes, bytes] = {}
        """The headers, with names in lower case; of one that comes twice the last counts."""
        self.has_repeated = False
        """True when one of the headers comes twice."""
        self.is_kept_alive = self.is_chunked = self.expects_continue = False
        self.body_size = 0
        """The bytes of the body, when it is not chunked."""
        self.facts = HeadFacts()
        # Before the parser sees it: whether a line ends with a single one of the two is a matter
        # of taste among parsers.
        ends = data.count(b"\r\n")
        if data.count(b"\n") != ends or data.count(b"\r") != ends:
            raise InvalidRequest(NOT_HTTP)
        lines, self._parser = self._lines, httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # RFC 9110, 7.8: a server may ignore an upgrade.
            _check_upgrade(self.method, lines)
        except httptools.HttpParserError:
            raise InvalidRequest(NOT_HTTP) from None
        finally:
            del self._parser  # it refers to this one, and takes more memory
        if len(lines) > most_headers:
            raise HeadersTooLarge(
                f"the request has more than {most_headers} headers (limits.headers)",
                details={"limit": most_headers, "setting": "limits.headers"},
            )
        self._check(lines)

    @property
    def lines(self) -> list[Header]:
        """The headers as they came, with names in lower case."""
        return self._lines or list(self.headers.items())

    def with_other_length(self, data: bytes) -> "RequestHead | None":
        """The head in these bytes, if it is this one but for the length of the body.

        Most clients send such heads, one after the other, and only the first one is parsed.
        """
        line, found, rest = self.data.lower().partition(_LENGTH_LINE)
        length, end, _ = rest.partition(b"\r\n")
        if not found or not end or not length.isdigit():
            return None  # it has none, or is written in another way
        start, after = len(line) + len(found), self.data[len(line) + len(found) + len(length) :]
        digits = data[start : len(data) - len(after)]
        is_alike = data.startswith(self.data[:start]) and data.endswith(after)
        if not is_alike or not digits.isdigit() or len(digits) > _PLAIN_DIGITS:
            return None
        head = RequestHead.__new__(RequestHead)
        head.data, head.facts = data, self.facts
        head.method, head.version, head.target = self.method, self.version, self.target
        head.path, head.raw_path, head.query = self.path, self.raw_path, self.query
        head.is_kept_alive, head.is_chunked = self.is_kept_alive, self.is_chunked
        head.has_repeated = self.has_repeated
        head.expects_continue, head.body_size = self.expects_continue, int(digits)
        head.headers = {**self.headers, b"content-length": digits}
        head._lines = [
            (name, digits if name == b"content-length" else value) for name, value in self._lines
        ]
        return head

    # ------------------------------------------------------------------ called by the parser

    def on_url(self, target: bytes) -> None:
        """A part of the target."""
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; the parser leaves white space at the end of values."""
        self._lines.append((_lower_case(name), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The end, at which a parser forgets all this when the request has no body."""
        parser = self._parser
        self.method, self.version = parser.get_method().decode("ascii"), parser.get_http_version()
        self.is_kept_alive = parser.should_keep_alive() and self.version != "1.0"

    # ------------------------------------------------------------------ rules

    def _check(self, lines: list[Header]) -> None:
        if self.version not in ("1.1", "1.0"):
            raise InvalidRequest("this server speaks HTTP/1.1 and HTTP/1.0")
        known = self.headers = dict(lines)
        self.has_repeated = len(known) != len(lines)
        if not self.has_repeated:
            self._lines = []
        else:
            names = [name for name, _ in lines]
            for name in _SINGLE_HEADERS:
                if names.count(name) > 1:
                    raise InvalidRequest(f"the header {name.decode()} comes twice; send it once")
        host = known.get(b"host")
        if host is None and self.version == "1.1":  # RFC 9112, 3.2
            raise InvalidRequest("the request has no Host header")
        if host is not None and not _is_host(host):
            raise InvalidRequest("the Host header must be a name or an address, and a port")
        self._find_body(known)
        self._split_target()

    def _find_body(self, headers: dict[bytes, bytes]) -> None:
        coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
        if coding is not None:
            # RFC 9112, 6.1: with a length beside it, or in HTTP/1.0, it is probably an attack.
            if coding.lower() != b"chunked" or self.version == "1.0" or length is not None:
                raise InvalidRequest(
                    "send a body with Content-Length, or in HTTP/1.1 with Transfer-Encoding:"
                    " chunked, and in no other way"
                )
            self.is_chunked = True
        elif length is not None:
            if not length.isdigit() or len(length) > _MOST_DIGITS:
                raise InvalidRequest(NOT_HTTP)
            self.body_size = int(length)
        if b"expect" in headers:
            self.expects_continue = headers[b"expect"].lower() == b"100-continue"

    def _split_target(self) -> None:
        if not self.target.startswith(b"/"):
            self._use_absolute_target()
        path, _, self.query = self.target.partition(b"?")
        if b"#" in self.target or not path.isascii():
            raise InvalidRequest(NOT_HTTP)
        self.raw_path = path
        text = path.decode("ascii")
        self.path = unquote(text) if "%" in text else text

    def _use_absolute_target(self) -> None:
        """The host of an absolute target takes the place of the header (RFC 9112, 3.2.2)."""
        found = _ABSOLUTE_TARGET.fullmatch(self.target)
        if found is None or not _is_host(found[1]):
            raise InvalidRequest("the target of the request must be a path, or an http(s) URL")
        self.target = found[2] if found[2].startswith(b"/") else b"/" + found[2]
        if self._lines:
            self._lines = [one for one in self._lines if one[0] != b"host"]
            self._lines.append((b"host", found[1]))
        self.headers[b"host"] = found[1]


def _is_host(host: bytes) -> bool:
    return len(host) <= _MOST_HOST and _parses_as_host(host)


# Nearly all requests have the same headers: connections share their names.
_lower_case = functools.lru_cache(maxsize=256)(bytes.lower)


@functools.lru_cache(maxsize=256)  # nearly all requests have the same
def _parses_as_host(host: bytes) -> bool:
    return parse_authority(host.decode("latin-1")) is not None


def _check_upgrade(method: str, headers: list[Header]) -> None:
    """Raises: InvalidRequest, for what cannot be served without it."""
    if method == "CONNECT":
        raise InvalidRequest("this server is no proxy: it has no CONNECT")
    if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers):
        raise InvalidRequest("this server has no WebSocket endpoints; use plain HTTP")
