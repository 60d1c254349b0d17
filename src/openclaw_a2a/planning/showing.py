"""How objectives, plans and what happens to them are shown to those who ask."""

from typing import cast

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.planning.journal import Operation, encode_line
from openclaw_a2a.planning.objects import PlanId
from openclaw_a2a.planning.progress import progress
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.steps import RunRules, retries


class Showing:
    """Shows objectives: their own members, and what can be said of them beyond these."""

    def __init__(self, rules: RunRules) -> None:
        self._rules = rules

    def objective(
        self, state: ObjectiveState, *, with_plans: bool = True, with_tasks: bool = True
    ) -> JsonObject:
        """An objective with its progress, and whether it and its plans are run."""
        shown = plain(state.show(with_plans=with_plans, with_tasks=with_tasks))
        shown["progress"] = self._progress(state)
        for item in (shown, *shown.get("plans", ())):
            _tell_run(item, state)
        return shown

    def owned(self, state: ObjectiveState, *, with_plans: bool = True) -> JsonObject:
        """An objective, and to whom it belongs."""
        shown, owner = self.objective(state, with_plans=with_plans), state.owner
        if owner is not None:
            shown |= {"principal": owner.principal, "account": owner.account}
        return shown

    def plan(
        self, state: ObjectiveState, plan_id: PlanId, *, with_tasks: bool = True
    ) -> JsonObject:
        """A plan, and whether it is run."""
        shown = plain(state.show_plan(plan_id, with_tasks=with_tasks))
        _tell_run(shown, state)
        return shown

    def change(self, operation: Operation, state: ObjectiveState) -> JsonObject:
        """Something that happened to an objective, and how it is then."""
        line = cast("JsonObject", msgspec.json.decode(encode_line(operation)))
        line["data"].pop("owner", None)
        status = state.objective.status.value
        return {"change": line, "status": status, "progress": self._progress(state)}

    def _progress(self, state: ObjectiveState) -> JsonObject:
        shown = plain(progress(state))
        if retrying := retries(state, self._rules):
            shown["retrying"] = [plain(one) for one in retrying]
        return shown


def plain(value: msgspec.Struct) -> JsonObject:
    """A struct as JSON has it."""
    return msgspec.to_builtins(value)


def _tell_run(shown: JsonObject, state: ObjectiveState) -> None:
    if shown["id"] in state.runs:
        shown["execution"] = state.runs[shown["id"]]
