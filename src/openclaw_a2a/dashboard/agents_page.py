"""Read model of the agents: their cards as others see them, availability and recent work."""

from collections.abc import Callable, Sequence

from openclaw_a2a.dashboard.task_list import TaskReader, TaskSummary
from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.errors import RouteNotFound
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.model.message import JsonStruct
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
    """One agent, with what callers have asked of it last."""

    agent: AgentView
    card_problems: tuple[CardProblem, ...]
    recent: tuple[TaskSummary, ...]


class AgentReader:
    """Makes the pages of agents. `agents` gives those that are served now."""

    def __init__(self, agents: Callable[[], Sequence[AgentView]], tasks: TaskReader) -> None:
        self._agents = agents
        self._tasks = tasks

    def list(self) -> AgentsPage:
        """All agents."""
        return AgentsPage(tuple(self._agents()))

    def find(self, account: str) -> AgentView:
        """The agent of an account. Raises: RouteNotFound."""
        for one in self._agents():
            if one.account == account:
                return one
        raise RouteNotFound(f"there is no account {account[:80]}; see the list of agents")

    async def read(self, account: str) -> AgentPage:
        """One agent. Raises: RouteNotFound."""
        view = self.find(account)
        query = StatusQuery(_RECENT, account=view.account)
        return AgentPage(view, check_card(view.card), await self._tasks.list_rows(query))


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
        for field, value in (("id", skill.id), ("name", skill.name), ("tags", skill.tags)):
            if not value:
                problems.append(CardProblem(f"skills[{number}].{field}", "is required and empty"))
    return tuple(problems)
