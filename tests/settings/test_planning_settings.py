"""Settings of objectives and plans."""

from pathlib import Path

import pytest

from openclaw_a2a.settings import effective_settings
from openclaw_a2a.settings.sections import PlanningSettings

TWO_AGENTS = {"agents": {"main": {"adapter": "echo"}, "thinker": {"adapter": "echo"}}}


def said(found: dict) -> dict[str, str]:
    """What is said of each path, without the place in the file."""
    return {path: one.message.partition(" (in ")[0] for path, one in found.items()}


def test_planning_is_disabled_and_requires_activation_by_default(load, home: Path) -> None:
    assert load().settings.opt == PlanningSettings(
        enabled=False,
        require_activation=True,
        directory=str(home / ".openclaw-a2a" / "objectives"),
        max_plans_per_objective=10,
        max_tasks_per_plan=50,
        parallel=4,
        retries=0,
        backoff_seconds=5.0,
        tools=False,
        planner="",
    )


def test_everything_that_can_be_set_is_read_without_a_warning(load, home: Path) -> None:
    section = {
        "enabled": True,
        "requireActivation": False,
        "directory": "~/sessions",
        "maxPlansPerObjective": 3,
        "maxTasksPerPlan": 7,
        "parallel": 1,
        "retries": 2,
        "backoffSeconds": 0,
        "tools": True,
        "planner": " thinker ",
    }
    loaded = load({**TWO_AGENTS, "opt": section})
    assert loaded.warnings == ()
    assert loaded.settings.opt == PlanningSettings(
        enabled=True,
        require_activation=False,
        directory=str(home / "sessions"),
        max_plans_per_objective=3,
        max_tasks_per_plan=7,
        parallel=1,
        retries=2,
        backoff_seconds=0,
        tools=True,
        planner="thinker",
    )


def test_planning_can_be_turned_on_from_the_environment(load) -> None:
    environ = {"OPENCLAW_A2A_OPT__ENABLED": "true", "OPENCLAW_A2A_OPT__MAX_TASKS_PER_PLAN": "5"}
    found = load(environ=environ).settings.opt
    assert (found.enabled, found.max_tasks_per_plan) == (True, 5)


def test_all_problems_are_reported_at_once(problems) -> None:
    section = {
        "enabled": "yes",
        "requireActivation": 1,
        "directory": 3,
        "maxPlansPerObjective": 0,
        "maxTasksPerPlan": 1.5,
        "parallel": -1,
        "retries": 101,
        "backoffSeconds": -0.5,
        "planner": "nobody",
        "palner": "main",
    }
    assert said(problems({**TWO_AGENTS, "opt": section})) == {
        "opt.enabled": "must be true or false, not a string",
        "opt.requireActivation": "must be true or false, not 1",
        "opt.directory": "must be a string, not 3",
        "opt.maxPlansPerObjective": "must be a whole number from 1 to 2147483647, not 0",
        "opt.maxTasksPerPlan": "must be a whole number from 1 to 2147483647, not 1.5",
        "opt.parallel": "must be a whole number from 1 to 2147483647, not -1",
        "opt.retries": "must be a whole number from 0 to 100, not 101",
        "opt.backoffSeconds": "must be a number from 0 to 2147483647, not -0.5",
        "opt.planner": "there is no agent nobody; known here: main, thinker",
        "opt.palner": "is not a setting; did you mean planner?",
    }


def test_a_misspelt_planner_is_reported_with_the_nearest_agent(problems) -> None:
    found = said(problems({**TWO_AGENTS, "opt": {"planner": "thinkr"}}))
    assert found == {"opt.planner": "there is no agent thinkr; did you mean thinker?"}


def test_an_agent_that_stands_in_may_plan(load) -> None:
    assert load({"opt": {"planner": "main"}}).settings.opt.planner == "main"


@pytest.mark.parametrize("value", [1, "on", [], None])
def test_a_section_that_is_not_an_object_is_a_problem(problems, value: object) -> None:
    assert set(problems({"opt": value})) == {"opt"}


@pytest.mark.parametrize("path", ["\0", "~nobody-has-this-name/x", "  "])
def test_a_folder_that_is_none_is_a_problem(problems, path: str) -> None:
    assert set(problems({"opt": {"directory": path}})) == {"opt.directory"}


@pytest.mark.requirement("opt.storage.directory")
def test_the_folder_moves_with_the_data_and_starts_at_the_file(load, home: Path) -> None:
    moved = load(overrides={"data": "/tmp/x"}).settings.opt.directory
    assert moved == "/tmp/x/objectives"
    assert load({"opt": {"directory": "mine"}}).settings.opt.directory == str(home / "mine")


def test_objectives_and_tasks_need_different_folders(load, problems) -> None:
    store = {"store": {"kind": "json-file", "path": "~/both"}}
    found = problems({**store, "opt": {"enabled": True, "directory": "~/both"}})
    assert set(found) == {"opt.directory"}
    assert "already used by the gateway (store)" in found["opt.directory"].message
    assert load({**store, "opt": {"directory": "~/both"}}).warnings == ()


def test_tools_without_planning_are_a_warning_that_names_the_setting(load) -> None:
    [warning] = load({"opt": {"tools": True}}).warnings
    assert (warning.path, warning.message) == (
        "opt.tools",
        "has no effect; set opt.enabled to true",
    )


def test_effective_values_are_described(load, home: Path) -> None:
    shown = effective_settings(load({"opt": {"enabled": True}}).settings)["opt"]
    assert shown["enabled"] is True
    assert shown["directory"] == str(home / ".openclaw-a2a" / "objectives")
