"""HTML from read models: the templates, and the filters that they use."""

import functools
import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup

from openclaw_a2a.dashboard.markdown import render_markdown, render_markdown_line
from openclaw_a2a.dashboard.task_page import format_seconds
from openclaw_a2a.model.message import JsonStruct, format_timestamp

_FOLDER = Path(__file__).parent
_MAX_KEPT = 1024
"""How many rows and cards of tasks are kept; each has about a kilobyte."""
STATIC = _FOLDER / "static"


class Renderer:
    """Renders templates. Everything that is not marked as HTML is escaped."""

    def __init__(self, version: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "bytes": format_bytes,
            "duration": format_seconds,
            "json": _format_json,
            "json_tree": render_json_tree,
            "markdown": render_markdown,
            "markdown_line": render_markdown_line,
            "iso": format_timestamp,
            "iso_moment": _iso_moment,
            "moment": _moment,
            "segment": _segment,
            "short": lambda text: str(text)[:8],
        }
        added: dict[str, Any] = {
            "query": _query,
            "state": _render_state,
            "static": static_url,
            "version": version,
            "kept": functools.lru_cache(_MAX_KEPT)(self._render_macro),
        }
        self._environment.globals.update(added)

    def render_page(self, template: str, members: Mapping[str, Any]) -> bytes:
        """A whole page."""
        return self._environment.get_template(template).render(members).encode()

    def _render_macro(self, name: str, *arguments: object) -> Markup:
        """A macro with these arguments, which decide what comes of it: templates have it kept."""
        return getattr(self._environment.get_template("macros.html").module, name)(*arguments)

    def render_part(self, template: str, view: JsonStruct, *, may_act: bool) -> bytes:
        """The live part of a page; the same for everybody who may do the same."""
        found = self._environment.get_template(template)
        context = found.new_context({"page": view, "may_act": may_act})
        # Without blank lines: they mean nothing in HTML, and each would be sent.
        text = "".join(found.blocks["live"](context))
        return text.strip().encode()


_TIME = Markup('<time datetime="%s" title="%s">%s</time>')  # `format` takes twice as long


def _moment(at: datetime | None) -> Markup:
    """A time: absolute here; a script of the page adds how long ago that was."""
    if at is None:
        return Markup("")
    iso = format_timestamp(at)
    shown = f"{iso[:10]} {iso[11:19]} UTC"
    return _TIME % (iso, shown, shown)


def _iso_moment(text: str) -> Markup:
    return _moment(datetime.fromisoformat(text))


def _format_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def render_json_tree(text: str) -> Markup:
    """JSON with line breaks as a tree whose objects and lists fold; numbers as they are written.

    By the indentation of its lines, so that text which is cut, or no JSON at all, is shown too.
    """
    out = [Markup('<div class="copy json"><div class="copy-head"><span>JSON</span>')]
    out.append(Markup('<button type="button" class="quiet" data-copy>Copy</button></div>'))
    out.append(Markup('<pre tabindex="0">'))
    is_open: list[bool] = []
    for line in text.split("\n"):
        mark = line.rstrip()[-1:]
        if mark in ("{", "["):
            out.append(Markup("<details open><summary>{}\n</summary>").format(line))
            is_open.append(True)
        elif is_open and line.strip().rstrip(",") in ("}", "]"):
            is_open.pop()
            out.append(Markup("{}\n</details>").format(line))
        else:
            out.append(Markup("{}\n").format(line))
    out += [Markup("</details>")] * len(is_open)
    out.append(Markup("</pre></div>"))
    return Markup("").join(out)


def format_bytes(size: int) -> str:
    """A size for people: 512 B, 3.4 KB, 12 MB."""
    amount, unit = float(size), "B"
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"


@functools.lru_cache(maxsize=1024)
def _segment(text: object) -> str:
    """A text as one segment of a path."""
    return quote(str(text), safe="")


@functools.lru_cache(maxsize=256)
def _render_state(name: str, label: str = "") -> Markup:
    """A state with its icon; `label` in place of its name."""
    icon = Markup('<svg class="icon" aria-hidden="true"><use href="#i-{}"/></svg>').format(name)
    text = label or name.replace("-", " ")
    return Markup('<span class="state s-{}">{}<span>{}</span></span>').format(name, icon, text)


@functools.lru_cache(maxsize=1024)
def _query(**members: str) -> str:
    """A query with the members that are not empty."""
    return urlencode({name: value for name, value in members.items() if value})


@functools.cache
def read_static(name: str) -> bytes | None:
    """The content of a file that pages use; None when there is none of this name."""
    path = STATIC / name
    known = {one.name for one in STATIC.iterdir() if one.is_file()}
    return path.read_bytes() if name in known else None


def static_url(name: str) -> str:
    """The address of a file that pages use; it changes with the content, so browsers keep it."""
    content = read_static(name) or b""
    return f"/dashboard/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"
