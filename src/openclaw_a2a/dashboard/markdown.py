"""Markdown of agents and callers as HTML that can run nothing and fetch nothing.

The text is an attacker's. HTML in it is shown as text. Links lead to web pages and mail only, and
say nothing about where they come from. Pictures are links: a page that shows them would tell their
server who looks at it. The pages' Content-Security-Policy forbids the same once more.
"""

import functools
import re
from collections.abc import MutableMapping, Sequence

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

_ADDRESS = re.compile(r"(https?://|mailto:)[^\s]", re.IGNORECASE)
_LINK = {"rel": "noopener noreferrer nofollow", "target": "_blank"}
_CACHED = 256


def _is_allowed(url: str) -> bool:
    return _ADDRESS.match(url) is not None


def _adapt_tokens(state: StateCore) -> None:
    """Turn pictures into links, have links open elsewhere, and let tables be scrolled."""
    for token in state.tokens:
        # What is wider than the page scrolls: with the focus in it, by keys too. So does code.
        if token.type == "table_open":
            token.attrs = {"tabindex": "0"}
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs = {"href": str(child.attrGet("href") or ""), **_LINK}
            elif child.type == "image":
                child.type, child.content = "html_inline", _show_image(child)


def _show_image(token: Token) -> str:
    source, label = str(token.attrGet("src") or ""), token.content or "picture"
    if not _is_allowed(source):
        return escape(label)
    link = Markup('<a href="{}" rel="{rel}" target="{target}">🖼 {}</a>')
    return link.format(source, label, **_LINK)


def _show_code(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    env: MutableMapping[str, object],
) -> str:
    shown = self.fence if tokens[index].type == "fence" else self.code_block
    return shown(tokens, index, options, env).replace("<pre>", '<pre tabindex="0">', 1)


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = _is_allowed
    parser.core.ruler.push("adapt_tokens", _adapt_tokens)
    parser.add_render_rule("fence", _show_code)
    parser.add_render_rule("code_block", _show_code)
    return parser


@functools.lru_cache(maxsize=_CACHED)
def render_markdown(text: str) -> Markup:
    """The text as HTML. Live pages are made again and again, so the last ones are kept."""
    return Markup(_parser().render(text))  # noqa: S704 - the parser escapes all HTML of the text


@functools.lru_cache(maxsize=_CACHED)
def render_markdown_line(text: str) -> Markup:
    """The text as one line of HTML, for a place that has no room for blocks."""
    line = " ".join(text.split())
    return Markup(_parser().renderInline(line))  # noqa: S704 - the parser escapes all HTML of it
