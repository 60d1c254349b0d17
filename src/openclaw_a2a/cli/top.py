"""`top`: the dashboard on a terminal. Draws the JSON pages of the dashboard and handles keys.

It follows only the page on the screen, so that the gateway renders no other page.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from urllib.parse import urlencode

from rich.cells import cell_len
from rich.text import Text

from openclaw_a2a.cli.dashboard_client import DashboardClient
from openclaw_a2a.cli.keyboard import KeyReader, raw_terminal
from openclaw_a2a.cli.render.terminal import LiveView, console_for
from openclaw_a2a.cli.render.top import (
    STATE_TABS,
    VIEWS,
    TopRow,
    describe_item,
    describe_page,
    draw_frame,
    draw_hint,
    draw_line,
    draw_row,
    draw_tabs,
    find_row,
    list_rows,
    say_empty,
    view_address,
    wrap_lines,
)
from openclaw_a2a.model.errors import AgentError, AgentUnavailable, NotAllowed
from openclaw_a2a.model.ids import JsonObject

_TICK_S = 1.0
_MESSAGE_S = 6.0
_ESCAPE_S = 0.05
"""How long the rest of an escape sequence may take; after that it was the Escape key."""
_MAX_TYPED = 4000
_MAX_QUESTION_LINES = 6

_HELP = (
    ("↑ ↓  j k", "move; in a task: scroll"),
    ("PgUp PgDn  g G", "a page; to the first, to the last"),
    ("Enter", "open"),
    ("Esc", "back; remove the filter"),
    ("1 2 3 4  Tab", "Now, tasks, calls, objectives"),
    ("← →", "the tabs of the tasks"),
    ("/", "filter"),
    ("a", "answer a question; allow or deny an approval"),
    ("c", "cancel"),
    ("q", "quit"),
)


class KeyMode(Enum):
    """What keys mean.

    LIST      move between the rows of a view
    ITEM      scroll in one task, call or objective
    FILTER    edit the filter
    ANSWER    edit an answer
    DECIDE    allow or deny
    CONFIRM   confirm a cancellation
    HELP      any key goes back
    """

    LIST = "list"
    ITEM = "item"
    FILTER = "filter"
    ANSWER = "answer"
    DECIDE = "decide"
    CONFIRM = "confirm"
    HELP = "help"


_ASKING = (KeyMode.ANSWER, KeyMode.DECIDE, KeyMode.CONFIRM)
_HINTS: Mapping[KeyMode, str] = {
    KeyMode.LIST: "↑↓ move  ⏎ open  a answer  c cancel  / filter  ? help  q quit",
    KeyMode.ITEM: "↑↓ scroll  Esc back  a answer  c cancel  ? help  q quit",
    KeyMode.FILTER: "⏎ keep  Esc remove",
    KeyMode.ANSWER: "⏎ send  Esc not now",
    KeyMode.DECIDE: "y allow  n deny  Esc not now",
    KeyMode.CONFIRM: "y yes  Esc no",
    KeyMode.HELP: "any key: back",
}


class Top:
    """The state of the screen, and the actions of keys on it."""

    def __init__(self, client: DashboardClient, view: str) -> None:
        self._client = client
        self._view = view
        self._tab = STATE_TABS[0]
        self._filter = ""
        self._mode = KeyMode.LIST
        self._under = KeyMode.LIST  # the mode to return to from a prompt or the help
        self._page: JsonObject | None = None
        self._item: JsonObject | None = None
        self._item_address = ""
        self._chosen = ""
        self._place = 0
        self._offset = 0
        self._scroll = 0
        self._typed = ""
        self._message = ("", "", 0.0)
        self._trouble = ""
        self._asked: TopRow | None = None
        self._room = 10
        self._changed = asyncio.Event()
        self._is_over = False
        self._group: asyncio.TaskGroup | None = None
        self._follower: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    # ---------------------------------------------------------------- running

    async def run(self) -> None:
        """Run until the user quits. Raises: AgentError (the gateway refuses)."""
        self._page = await self._client.read(self._list_address)
        screen = LiveView(as_json=False, leaves_page=False)
        with closing(screen), raw_terminal() as raw:
            async with asyncio.TaskGroup() as group:
                self._group = group
                with self._listening(screen, raw):
                    self._follow(self._list_address)
                    while not self._is_over:
                        self._changed.clear()
                        screen.show(self.draw(console_for(sys.stdout).size, datetime.now(UTC)))
                        with suppress(TimeoutError):
                            await asyncio.wait_for(self._changed.wait(), _TICK_S)
                for task in (self._follower, *self._jobs):
                    if task is not None:
                        task.cancel()
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _listening(self, screen: LiveView, raw: Callable[[bool], None]) -> Generator[None]:
        """Listen to keys and to signals of the terminal."""
        loop, keys = asyncio.get_running_loop(), KeyReader()
        loop.add_reader(sys.stdin.fileno(), partial(self._read_keys, keys))
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        loop.add_signal_handler(signal.SIGTSTP, partial(self._suspend, screen, raw))
        # By the event loop: an exception in a Python signal handler could hit any task.
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for one in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGTERM):
                loop.remove_signal_handler(one)

    def _terminate(self) -> None:
        self._failure, self._is_over = SystemExit(128 + signal.SIGTERM), True
        self._changed.set()

    def _suspend(self, screen: LiveView, raw: Callable[[bool], None]) -> None:
        """Ctrl-Z: release the terminal until the shell continues this process."""
        screen.close()
        raw(False)
        os.kill(os.getpid(), signal.SIGSTOP)
        raw(True)
        self._changed.set()

    def _read_keys(self, keys: KeyReader) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 4096)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._is_over = True
            self._changed.set()
            return
        for key in keys.feed(data):
            self.press(key)
        if keys.has_rest:
            asyncio.get_running_loop().call_later(_ESCAPE_S, self._flush_keys, keys)

    def _flush_keys(self, keys: KeyReader) -> None:
        for key in keys.flush():
            self.press(key)

    def _follow(self, address: str) -> None:
        """Follow this page, and no other."""
        if self._follower is not None:
            self._follower.cancel()
        if (group := self._group) is not None:
            self._follower = group.create_task(self._read_page(address))

    async def _read_page(self, address: str) -> None:
        try:
            async with aclosing(self._client.follow(address, self._note_connection)) as pages:
                async for document in pages:
                    self.receive(address, document)
        except (AgentError, NotAllowed) as error:
            if self._mode is KeyMode.LIST or address == self._list_address:
                self._failure, self._is_over = error, True
            else:
                self._leave_item()
                self.say(error.message, "red")
            self._changed.set()

    def receive(self, address: str, document: JsonObject) -> None:
        """A page has come."""
        if address == self._item_address:
            self._item = document
        elif address == self._list_address:
            self._page = document
        self._changed.set()

    def _note_connection(self, error: AgentUnavailable | None) -> None:
        self._trouble = "" if error is None else f"no connection: {error.message}"
        self._changed.set()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        if (group := self._group) is not None:
            task = group.create_task(work)
            self._jobs.add(task)
            task.add_done_callback(self._jobs.discard)

    async def _act(self, path: str, form: Mapping[str, str]) -> None:
        try:
            self.say(await self._client.act(path, form), "green")
        except (AgentError, NotAllowed) as error:
            self.say(error.message, "red")

    def say(self, text: str, style: str = "") -> None:
        """Show a message for a while."""
        self._message = (text, style, time.monotonic() + _MESSAGE_S)
        self._changed.set()

    @property
    def _list_address(self) -> str:
        members = {}
        if self._view == "tasks":
            members = {"tab": self._tab if self._tab != STATE_TABS[0] else "", "q": self._filter}
        query = urlencode({name: value for name, value in members.items() if value})
        return f"{view_address(self._view)}{f'?{query}' if query else ''}"

    # ---------------------------------------------------------------- keys

    def press(self, key: str) -> None:
        """A key was pressed."""
        act = _KEYS[self._mode].get(key)
        if act is not None:
            act(self)
        elif self._mode is KeyMode.HELP:
            self._mode = self._under
        elif self._mode in (KeyMode.FILTER, KeyMode.ANSWER) and len(key) == 1 and key.isprintable():
            self._typed = (self._typed + key)[:_MAX_TYPED]
        self._changed.set()

    def quit(self) -> None:
        """Leave."""
        self._is_over = True

    def move(self, step: int) -> None:
        """Go to another row, or scroll."""
        if self._mode is KeyMode.ITEM:
            self._scroll = max(0, self._scroll + step)
            return
        places = [place for place, row in enumerate(self._rows) if not row.is_heading]
        if not places:
            return
        now = min(range(len(places)), key=lambda one: abs(places[one] - self._place))
        self._place = places[min(max(now + step, 0), len(places) - 1)]
        self._chosen = self._rows[self._place].key

    def move_page(self, pages: int) -> None:
        """Go a screen up or down."""
        self.move(pages * max(1, self._room - 1))

    def move_far(self, step: int) -> None:
        """Go to the first or the last row."""
        self.move(step * 1_000_000)

    def show_view(self, view: str) -> None:
        """Show another view."""
        self._view, self._filter, self._mode = view, "", KeyMode.LIST
        self._item, self._item_address = None, ""
        self._load_list()

    def show_next_view(self) -> None:
        """Show the view after this one."""
        self.show_view(VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)])

    def show_tab(self, step: int) -> None:
        """Show the tab beside this one."""
        if self._view == "tasks":
            self._tab = STATE_TABS[(STATE_TABS.index(self._tab) + step) % len(STATE_TABS)]
            self._load_list()

    def open_item(self) -> None:
        """Show the chosen row in full."""
        row = self._chosen_row
        if row is not None and row.page:
            self._mode, self._item, self._scroll = KeyMode.ITEM, None, 0
            self._item_address = row.page
            self._follow(row.page)

    def _leave_item(self) -> None:
        self._mode, self._item, self._item_address = KeyMode.LIST, None, ""
        self._follow(self._list_address)

    def go_back(self) -> None:
        """Close the item, otherwise remove the filter."""
        if self._mode is KeyMode.ITEM:
            self._leave_item()
        elif self._filter:
            self._set_filter("")

    def help(self) -> None:
        """Show the keys."""
        self._under, self._mode = self._mode, KeyMode.HELP

    def start_filter(self) -> None:
        """Write a filter."""
        self._mode, self._typed = KeyMode.FILTER, self._filter

    def keep_filter(self) -> None:
        """Take the filter as it was written."""
        self._mode = KeyMode.LIST
        self._set_filter(self._typed.strip())

    def drop_filter(self) -> None:
        """Show everything."""
        self._mode = KeyMode.LIST
        self._set_filter("")

    def _set_filter(self, text: str) -> None:
        before, self._filter = self._list_address, text
        if self._list_address != before:
            self._load_list()

    def _load_list(self) -> None:
        """Load other rows. Until they arrive there are none, so that no key acts on an old row."""
        self._page, self._chosen, self._place, self._offset = None, "", 0, 0
        self._follow(self._list_address)

    def start_answer(self) -> None:
        """Answer or decide what the row or the item asks."""
        row = self._current_row
        if row is None or not row.action:
            self.say("It asks nothing.")
            return
        self._asked, self._under, self._typed = row, self._mode, ""
        self._mode = KeyMode.DECIDE if row.is_approval else KeyMode.ANSWER

    def send_answer(self) -> None:
        """Send what was written."""
        row, text = self._asked, self._typed.strip()
        self._mode = self._under
        if row is not None and text:
            self._chosen = ""  # the answered row moves elsewhere; the next one is selected
            form = {"text": text} | ({"step": row.step} if row.step else {})
            self._start(self._act(row.action, form))

    def decide(self, decision: str) -> None:
        """Allow or deny."""
        self._mode = self._under
        if self._asked is not None:
            self._chosen = ""
            self._start(self._act(self._asked.action, {"decision": decision}))

    def start_cancel(self) -> None:
        """Ask whether it is meant."""
        row = self._current_row
        if row is None or not row.cancel:
            self.say("It has ended.")
            return
        self._asked, self._under, self._mode = row, self._mode, KeyMode.CONFIRM

    def cancel(self) -> None:
        """Cancel it."""
        self._mode = self._under
        if self._asked is not None:
            self._start(self._act(self._asked.cancel, {}))

    def drop_prompt(self) -> None:
        """Do nothing."""
        self._mode = self._under

    def erase(self) -> None:
        """Take the last character back."""
        self._typed = self._typed[:-1]

    def erase_all(self) -> None:
        """Take everything back."""
        self._typed = ""

    # ---------------------------------------------------------------- what is shown

    @property
    def _rows(self) -> list[TopRow]:
        rows = [] if self._page is None else list_rows(self._view, self._page)
        if self._filter and self._view != "tasks":  # tasks are searched by the gateway
            words = self._filter.lower().split()
            rows = [
                row
                for row in rows
                if not row.is_heading
                and _has_words(f"{row.state} {row.who} {row.text} {row.key}", words)
            ]
        return rows

    @property
    def _chosen_row(self) -> TopRow | None:
        return next((row for row in self._rows if row.key and row.key == self._chosen), None)

    @property
    def _current_row(self) -> TopRow | None:
        if self._mode is KeyMode.ITEM:
            return None if self._item is None else find_row(self._item)
        return self._chosen_row

    def draw(self, size: tuple[int, int], now: datetime) -> list[Text]:
        """The lines of the screen."""
        width, _ = size
        state = self._trouble or self._client.address.partition("://")[2]
        top = [draw_tabs(self._view, state, width)]
        page = self._page
        figures = "" if page is None else describe_page(self._view, page, tab=self._tab)
        top.append(draw_line(figures, width, "bright_black"))
        bottom = [
            *self._draw_question(width),
            self._draw_prompt(width),
            draw_hint(_HINTS[self._mode], width),
        ]
        self._room = max(1, size[1] - len(top) - len(bottom))
        return draw_frame(self._draw_body(width, now), size=size, top=top, bottom=bottom)

    def _draw_body(self, width: int, now: datetime) -> list[Text]:
        if self._mode is KeyMode.HELP:
            return [draw_line(f"  {keys:<18}{what}", width) for keys, what in _HELP]
        if self._item_address:
            if self._item is None:
                return [draw_line("...", width)]
            lines = wrap_lines(describe_item(self._item, now), width)
            self._scroll = min(self._scroll, max(0, len(lines) - self._room))
            return lines[self._scroll :]
        return self._draw_rows(width, now)

    def _draw_rows(self, width: int, now: datetime) -> list[Text]:
        rows = self._rows
        if self._page is None:
            return [draw_line("...", width)]
        if all(row.is_heading for row in rows):
            empty = say_empty(self._view, self._page, is_filtered=bool(self._filter))
            lines = [draw_row(row, width, now, is_chosen=False) for row in rows]
            return [*lines, *wrap_lines([(empty, "")] if empty else [], width)]
        self._keep_choice(rows)
        # The heading above the first row stays visible.
        first = self._place - 1 if self._place and rows[self._place - 1].is_heading else self._place
        self._offset = max(min(self._offset, first), self._place - self._room + 1, 0)
        shown = rows[self._offset : self._offset + self._room]
        return [draw_row(row, width, now, is_chosen=row.key == self._chosen) for row in shown]

    def _keep_choice(self, rows: list[TopRow]) -> None:
        """Keep the selected row when it moves; if it is gone, select the row in its place."""
        place = next((place for place, row in enumerate(rows) if row.key == self._chosen), None)
        if place is None or not self._chosen:
            place = min(self._place, len(rows) - 1)
            while rows[place].is_heading and place + 1 < len(rows):
                place += 1
            while rows[place].is_heading:
                place -= 1
        self._place, self._chosen = place, rows[place].key

    def _draw_question(self, width: int) -> list[Text]:
        """The question, above the input line of the answer."""
        if self._asked is None or self._mode not in _ASKING:
            return []
        is_cancel = self._mode is KeyMode.CONFIRM
        asked = self._asked.text if is_cancel else self._asked.question
        lines = [(line, "yellow") for line in asked.splitlines()]
        return wrap_lines(lines, width)[:_MAX_QUESTION_LINES]

    def _draw_prompt(self, width: int) -> Text:
        if self._mode is KeyMode.FILTER:
            return _draw_input("filter: ", self._typed, width)
        if self._mode is KeyMode.ANSWER:
            return _draw_input("answer: ", self._typed, width)
        if self._mode is KeyMode.DECIDE:
            return draw_line("Allow it?", width, "bold")
        if self._mode is KeyMode.CONFIRM:
            return draw_line("Cancel it?", width, "bold")
        text, style, until = self._message
        if text and time.monotonic() < until:
            return draw_line(text, width, style)
        if self._filter:
            return draw_line(f"filter: {self._filter}", width, "yellow")
        return Text("")


def _has_words(text: str, words: Sequence[str]) -> bool:
    lower = text.lower()
    return all(word in lower for word in words)


def _draw_input(label: str, typed: str, width: int) -> Text:
    """An input line: the end of the typed text is always visible."""
    shown = typed
    while cell_len(label) + cell_len(shown) + 1 > width and shown:
        shown = shown[1:]
    line = draw_line(label, width, "bold yellow")
    return line.append(shown).append("▏")


_Do = Callable[[Top], None]
_MOVES: Mapping[str, _Do] = {
    "up": lambda top: top.move(-1),
    "k": lambda top: top.move(-1),
    "down": lambda top: top.move(1),
    "j": lambda top: top.move(1),
    "page-up": lambda top: top.move_page(-1),
    "page-down": lambda top: top.move_page(1),
    " ": lambda top: top.move_page(1),
    "home": lambda top: top.move_far(-1),
    "g": lambda top: top.move_far(-1),
    "end": lambda top: top.move_far(1),
    "G": lambda top: top.move_far(1),
    "a": Top.start_answer,
    "c": Top.start_cancel,
    "escape": Top.go_back,
    "?": Top.help,
    "q": Top.quit,
    "tab": Top.show_next_view,
    "1": lambda top: top.show_view("now"),
    "2": lambda top: top.show_view("tasks"),
    "3": lambda top: top.show_view("calls"),
    "4": lambda top: top.show_view("objectives"),
}
_WRITES: Mapping[str, _Do] = {"backspace": Top.erase, "clear": Top.erase_all}
_KEYS: Mapping[KeyMode, Mapping[str, _Do]] = {
    KeyMode.LIST: {
        **_MOVES,
        "enter": Top.open_item,
        "right": lambda top: top.show_tab(1),
        "left": lambda top: top.show_tab(-1),
        "/": Top.start_filter,
        "f": Top.start_filter,
    },
    KeyMode.ITEM: {**_MOVES, "left": Top.go_back, "backspace": Top.go_back},
    KeyMode.FILTER: {**_WRITES, "enter": Top.keep_filter, "escape": Top.drop_filter},
    KeyMode.ANSWER: {**_WRITES, "enter": Top.send_answer, "escape": Top.drop_prompt},
    KeyMode.DECIDE: {
        "y": lambda top: top.decide("allow"),
        "n": lambda top: top.decide("deny"),
        "escape": Top.drop_prompt,
        "q": Top.drop_prompt,
    },
    KeyMode.CONFIRM: {
        "y": Top.cancel,
        "enter": Top.drop_prompt,
        "n": Top.drop_prompt,
        "escape": Top.drop_prompt,
        "q": Top.drop_prompt,
    },
    KeyMode.HELP: {},
}
"""The action of each key in each mode. In HELP every key goes back; other keys in a prompt type."""
