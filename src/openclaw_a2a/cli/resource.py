"""Lists, shows and watches the items of the admin API of a gateway.

A `Resource` defines the name and the columns of a kind of item; a `WatchedResource` can also be
shown and watched. The commands in `commands/` add their flags and their help.
"""

import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

import msgspec

from openclaw_a2a.cli.admin_client import AdminClient, connect_admin
from openclaw_a2a.cli.errors import DONE, FAILED, INTERRUPTED, code_of, next_step, usage_error
from openclaw_a2a.cli.follow import Reconnect
from openclaw_a2a.cli.options import AdminOptions, decode_response
from openclaw_a2a.cli.render.terminal import (
    Change,
    ItemTable,
    LiveView,
    describe_empty,
    print_json,
    print_message,
    print_page,
    print_result,
    styled_text,
    terminal_width,
)
from openclaw_a2a.model.errors import AgentFailed, NotAllowed
from openclaw_a2a.model.ids import Json, JsonObject

if TYPE_CHECKING:
    from rich.console import RenderableType

_MAX_LISTED = 1000
_MAX_WATCHED = 20
_MOST_NAMED = 5
_POLL_S = 0.2
_OFF = frozenset({"route-not-found", "unsupported-operation", "http-404"})


class _ListedItem(Protocol):
    @property
    def id(self) -> str: ...


class _WatchedItem(_ListedItem, Protocol):
    """An item that changes until it is over; the colour of its row is that of its status."""

    @property
    def status(self) -> str: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def is_success(self) -> bool: ...


_Item = TypeVar("_Item", bound=_ListedItem)
_Watched = TypeVar("_Watched", bound=_WatchedItem)


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[_Item]):
    """A kind of item: its path in the admin API, what it is called, and its columns.

    Attributes:
        not_found: prefix of the error codes for an unknown item; such an error gets `list_hint` as
            its next step.
        empty: what is printed instead of an empty list.
        filters: the words for each filter of the list, for a list that is empty because of it.
        footnotes: what else there is to say below a list.
        feature: name, error code and next step for a gateway where this is off.
        strict_id: the item with its article ("an objective"), for the error about an id with
            characters other than letters, digits, - and _; empty: the characters are not checked.
        id_prefix: what ids begin with; they may be given without it.
    """

    path: str
    noun: str
    item_type: type[_Item]
    table: ItemTable[_Item]
    not_found: str
    list_hint: str
    empty: str
    filters: Mapping[str, str] = field(default_factory=dict[str, str])
    footnotes: Callable[[JsonObject], Iterable[str]] = lambda _: ()
    feature: tuple[str, str, str] | None = None
    strict_id: str = ""
    id_prefix: str = ""

    @contextmanager
    def connect(self, options: AdminOptions) -> Generator[AdminClient]:
        """A client; errors of the gateway get the next step.

        Raises: as `connect_admin`, and NotAllowed when the gateway does not have the feature.
        """
        with connect_admin(options) as admin:
            try:
                yield admin
            except AgentFailed as error:
                if self.feature is not None and code_of(error) in _OFF:
                    name, code, step = self.feature
                    message = f"{name} are off at {admin.address}"
                    raise NotAllowed(message, details=next_step(code, step)) from None
                if code_of(error).startswith(self.not_found):
                    error.details.setdefault("nextStep", self.list_hint)
                raise

    def fetch_list(
        self, admin: AdminClient, query: dict[str, str]
    ) -> tuple[Sequence[_Item], JsonObject]:
        """The items, and the document they came in. Raises: AgentUnavailable, AgentFailed."""
        body = admin.get(self.path, query=query)
        members = decode_response(body, dict[str, msgspec.Raw])
        items = decode_response(bytes(members.get(self.path, b"[]")), list[self.item_type])
        return items, msgspec.json.decode(body)

    def find(self, admin: AdminClient, prefix: str) -> str:
        """Complete an id: the only listed id that starts with `prefix`, or `prefix` if none does.

        Raises: InvalidRequest (the prefix is empty, invalid or ambiguous), AgentFailed.
        """
        if self.strict_id and re.search(r"[^\w-]", prefix):
            raise usage_error(f"{prefix} cannot be the id of {self.strict_id}", self.list_hint)
        # Before the check for an empty id: "the gateway is not running" is the more useful error.
        items, _ = self.fetch_list(admin, {"limit": str(_MAX_LISTED)})
        if not prefix.strip():
            raise usage_error(f"the id is empty; name one {self.noun}", self.list_hint)
        # "12ab" does not begin like a full id, so it becomes "obj-12ab"; "ob" and "obj-12" do.
        if not self.id_prefix.startswith(prefix[: len(self.id_prefix)]):
            prefix = f"{self.id_prefix}{prefix}"
        found = [one.id for one in items if one.id.startswith(prefix)]
        # An id that is not among the newest may still exist: the gateway decides.
        if prefix in found or not found:
            return prefix
        if len(found) > 1:
            message = f"{len(found)} ids begin with {prefix}: {', '.join(found[:_MOST_NAMED])}"
            raise usage_error(message, "Give more of the id.", code=f"{self.noun}-ambiguous")
        return found[0]

    def post(
        self, options: AdminOptions, prefix: str, *action: str, body: Json = None
    ) -> tuple[str, bytes]:
        """Send a command to the item with this id or prefix; its id and the answer."""
        with self.connect(options) as admin:
            item_id = self.find(admin, prefix)
            return item_id, admin.post(self.path, item_id, *action, body=body or {})

    def act(
        self, options: AdminOptions, prefix: str, *action: str, body: Json = None, done: str
    ) -> int:
        """Send a command as `post` and print that it is `done`; the exit code."""
        item_id, answer = self.post(options, prefix, *action, body=body)
        document = msgspec.json.decode(answer)
        print_result(document, f"{item_id}  {done}", as_json=options.as_json)
        return DONE

    def list(self, options: AdminOptions, *, limit: int | None = None, **chosen: str | None) -> int:
        """Print the items that the filters choose; the exit code. Raises: InvalidRequest."""
        query = {name: value for name, value in chosen.items() if value}
        if limit is not None:
            if not 1 <= limit <= _MAX_LISTED:
                raise usage_error(f"--limit must be from 1 to {_MAX_LISTED}, not {limit}")
            query["limit"] = str(limit)
        with self.connect(options) as admin:
            items, document = self.fetch_list(admin, query)
        if options.as_json:
            print_json(document)
            return DONE
        filters = {words: chosen.get(name) for name, words in self.filters.items()}
        empty = describe_empty(self.path, filters, self.empty)
        self.table.print(items, empty=empty, total=document.get("totalSize", 0))
        for line in self.footnotes(document):
            print_message(line, "yellow")
        return DONE


@dataclass(frozen=True, kw_only=True)
class WatchedResource(Resource[_Watched]):
    """A kind of item that can also be shown and watched.

    Attributes:
        show_page: the whole item.
        live_page: the item while it is watched on a terminal.
        final_page: what is printed below that in the end.
        changes: what is printed when it is watched without a terminal.
        hint: what a person can do about an item now.
    """

    show_page: Callable[[_Watched, datetime], Sequence["RenderableType"]]
    live_page: Callable[[_Watched, datetime], Sequence["RenderableType"]]
    final_page: Callable[[_Watched], Iterable["RenderableType"]] = lambda _: ()
    changes: Callable[[_Watched, datetime], Iterable[Change]]
    hint: Callable[[_Watched, AdminOptions], str] = lambda _, __: ""

    def fetch(self, admin: AdminClient, item_id: str) -> tuple[_Watched, Json]:
        """An item, and the document that describes it. Raises: AgentUnavailable, AgentFailed."""
        body = admin.get(self.path, item_id)
        return decode_response(body, self.item_type), msgspec.json.decode(body)

    def show(self, options: AdminOptions, prefix: str) -> int:
        """Print the item with this id or prefix; the exit code."""
        with self.connect(options) as admin:
            item, document = self.fetch(admin, self.find(admin, prefix))
        if options.as_json:
            print_json(document)
            return DONE
        print_page(self.show_page(item, datetime.now(UTC)))
        if hint := self.hint(item, options):
            print_message(hint, "dim")
        return DONE

    def watch(self, options: AdminOptions, prefix: str | None) -> int:
        """Watch the item with this id or prefix, or the newest ones; the exit code."""
        with self.connect(options) as admin:
            if prefix is not None:
                return self.watch_item(admin, self.find(admin, prefix), options)
            try:
                self._watch_newest(admin, options)
            except KeyboardInterrupt:
                return INTERRUPTED

    def watch_item(self, admin: AdminClient, item_id: str, options: AdminOptions) -> int:
        """Watch an item until it is over; the exit code."""
        try:
            with closing(LiveView(as_json=options.as_json)) as view:
                item = self.follow(admin, item_id, options, view)
        except KeyboardInterrupt:
            print_message(f"Interrupted. The {self.noun} goes on.")
            return INTERRUPTED
        if not options.as_json:
            print_page(self.final_page(item))
        return DONE if item.is_success else FAILED

    def follow(
        self, admin: AdminClient, item_id: str, options: AdminOptions, view: LiveView | None = None
    ) -> _Watched:
        """Wait until an item is over, and show it meanwhile; the item as it is then."""
        reconnect = Reconnect()
        while True:
            release = view.close if view is not None else None
            item, document = reconnect.call(lambda: self.fetch(admin, item_id), release)
            if view is not None:
                now = datetime.now(UTC)
                page = [*self.live_page(item, now)]
                if hint := self.hint(item, options):
                    page.append(styled_text(f"\n{hint}", "dim"))
                documents = [(item_id, document)]
                view.show(page, documents=documents, changes=self.changes(item, now))
            if item.is_over:
                return item
            time.sleep(_POLL_S)

    def _watch_newest(self, admin: AdminClient, options: AdminOptions) -> NoReturn:
        reconnect, query = Reconnect(), {"limit": str(_MAX_WATCHED)}
        with closing(LiveView(as_json=options.as_json)) as view:
            while True:
                items, document = reconnect.call(lambda: self.fetch_list(admin, query), view.close)
                now = datetime.now(UTC)
                colours = ["", *(self.table.colours.get(one.status, "") for one in items)]
                # Lines are printed below each other, so the newest comes last.
                oldest_first = [*zip(items, document[self.path], strict=True)][::-1]
                view.show(
                    [self.table.build(items, now, width=terminal_width(), row_styles=colours)],
                    documents=[(item.id, sent) for item, sent in oldest_first],
                    changes=[one for item, _ in oldest_first for one in self.changes(item, now)],
                )
                time.sleep(_POLL_S)
