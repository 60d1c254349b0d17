"""What `./dev fuzz` spends: the same CPU time for every property test, whatever its settings say.

A property test is repeated, with new examples each time, until its share of the time is used. So
`max_examples` of a single test does not matter here: it says how many examples one repetition has.
"""

import time
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis.statistics import collector

WALL_FACTOR = 6.0
"""A test that waits, or finds no free core, may take so many times its share of CPU time."""
HANG_S = 900.0
"""More than one repetition of any test takes on a busy machine."""
EXHAUSTED = "nothing left to do"


def _is_property(item: pytest.Item) -> bool:
    return item.get_closest_marker("hypothesis") is not None  # set by the plugin of Hypothesis


class FuzzBudget:
    """A plugin of pytest: repeats property tests, and reports how many examples each had."""

    def __init__(self, minutes: float) -> None:
        self._budget_s = minutes * 60
        self._share_s = 0.0
        self._spent: dict[str, tuple[int, float]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # Every worker of xdist has collected all tests, so that all of them compute the same share.
        properties = [item for item in session.items if _is_property(item)]
        self._share_s = self._budget_s / max(1, len(properties))
        for item in properties:
            item.add_marker(pytest.mark.timeout(WALL_FACTOR * self._share_s + HANG_S))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        if not _is_property(item):
            return (yield)
        examples, is_exhausted = 0, False

        def count(statistics: dict[str, Any]) -> None:
            nonlocal examples, is_exhausted
            phases = [one for one in statistics.values() if isinstance(one, dict)]
            examples += sum(len(one.get("test-cases", ())) for one in phases)
            is_exhausted = statistics.get("stopped-because") == EXHAUSTED

        began_cpu, began = time.process_time(), time.monotonic()
        try:
            with collector.with_value(count):
                yield
                # State machines are test cases of unittest, which keep their failures.
                while not is_exhausted and not getattr(item, "_excinfo", None):
                    is_over = time.process_time() - began_cpu >= self._share_s
                    if is_over or time.monotonic() - began >= WALL_FACTOR * self._share_s:
                        break
                    item.runtest()
        finally:
            spent = (examples, round(time.process_time() - began_cpu, 2))
            item.user_properties.append(("fuzzed", spent))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            spent = dict(report.user_properties).get("fuzzed")
            if isinstance(spent, list | tuple):
                self._spent[report.nodeid] = (spent[0], spent[1])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("examples of each property")
        for nodeid, (examples, cpu_s) in sorted(self._spent.items()):
            terminalreporter.write_line(f"{examples:8} in {cpu_s:7.2f} s  {nodeid}")
        examples = sum(one for one, _ in self._spent.values())
        cpu_s = sum(one for _, one in self._spent.values())
        terminalreporter.write_line(
            f"{examples} examples of {len(self._spent)} properties in {cpu_s / 60:.1f} minutes of"
            f" CPU; the budget is {self._budget_s / 60:g}, and one repetition of each at least"
        )
