"""Read model of the agents: their cards as others see them, availability and recent work."""

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from openclaw_a2a.dashboard.requests import PageRequest
from openclaw_a2a.dashboard.task_list import TaskReader, TaskSummary
from openclaw_a2a.dashboard.task_page import ChatTurn, TaskDetailsReader
from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.errors import RouteNotFound
from openclaw_a2a.model.ids import AccountId, AgentId, ContextId, PeerName
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.session_keys import OPERATOR_NAME
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import StatusQuery

_RECENT = 10


class AgentView(JsonStruct, frozen=True, omit_defaults=False):
    """The agent of an account. `reason` is why it is not available; `adapter` how it is run."""

    account: AccountId
    agent: AgentId
    adapter: str
    is_available: bool
    card: AgentCard
    card_url: str
    reason: str = ""
    needs_token: bool = False


class AgentsPage(JsonStruct, frozen=True, omit_defaults=False):
    """All agents that are served."""

    agents: tuple[AgentView, ...]


class CardProblem(JsonStruct, frozen=True):
    """What is wrong with a card, and where."""

    field: str
    problem: str


class AgentPage(JsonStruct, frozen=True, omit_defaults=False):
    """One agent, with what callers have asked of it last.

    `chat` is the operator's conversation with it in `context`, which the address names.
    """

    agent: AgentView
    card_problems: tuple[CardProblem, ...]
    recent: tuple[TaskSummary, ...]
    context: str = ""
    chat: tuple[ChatTurn, ...] = ()


class AgentReader:
    """Makes the pages of agents. `agents` gives those that are served now."""

    def __init__(
        self,
        agents: Callable[[], Sequence[AgentView]],
        tasks: TaskReader,
        details: TaskDetailsReader,
    ) -> None:
        self._agents = agents
        self._tasks = tasks
        self._details = details

    async def list(self, _: PageRequest) -> AgentsPage:
        """All agents."""
        return AgentsPage(tuple(self._agents()))

    async def show(self, request: PageRequest) -> AgentPage:
        """One agent, and the conversation in a context. Raises: RouteNotFound."""
        [account], context = request.segments, request.query.get("context", "")
        view = next((one for one in self._agents() if one.account == account), None)
        if view is None:
            raise RouteNotFound(f"there is no account {account[:80]}; see the list of agents")
        recent = await self._tasks.list_rows(StatusQuery(_RECENT, account=view.account))
        chat: tuple[ChatTurn, ...] = ()
        if context:
            scope = Scope(PeerName(OPERATOR_NAME), view.account)
            chat = await self._details.read_chat(scope, ContextId(context))
        return AgentPage(view, check_card(view.card), recent, context, chat)


def check_card(card: AgentCard) -> tuple[CardProblem, ...]:
    """What a client would stumble over: members that A2A 1.0 requires and the card lacks."""
    problems: list[CardProblem] = []
    for field, value in (
        ("name", card.name),
        ("description", card.description),
        ("version", card.version),
        ("supportedInterfaces", card.supported_interfaces),
        ("defaultInputModes", card.default_input_modes),
        ("defaultOutputModes", card.default_output_modes),
        ("skills", card.skills),
    ):
        if not value:
            problems.append(CardProblem(field, "is required and empty"))
    for number, skill in enumerate(card.skills):
        for field, value in (
            ("id", skill.id),
            ("name", skill.name),
            ("description", skill.description),
            ("tags", skill.tags),
        ):
            if not value:
                problems.append(CardProblem(f"skills[{number}].{field}", "is required and empty"))
        if any(skill.id == other.id for other in card.skills[:number]):
            problems.append(CardProblem(f"skills[{number}].id", f"is not unique: {skill.id}"))
    for number, one in enumerate(card.supported_interfaces):
        if not _is_address(one.url):
            reason = "is no address that a client could use"
            problems.append(CardProblem(f"supportedInterfaces[{number}].url", reason))
    for field, modes in (
        ("defaultInputModes", card.default_input_modes),
        ("defaultOutputModes", card.default_output_modes),
    ):
        problems += [
            CardProblem(field, f"{mode[:80]!r} is no media type")
            for mode in modes
            if "/" not in mode
        ]
    return tuple(problems)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    # A gRPC interface is a host and a port.
    return bool(parts.netloc) if "://" in url else ":" in url
