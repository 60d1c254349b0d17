"""Pages lead where they say, show settings and commands that exist, and are up to date."""

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pyjson5
import pytest
from cyclopts import App, CycloptsError
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands, name_of

from openclaw_a2a.cli.dispatch import build_commands
from openclaw_a2a.settings import load_settings, settings_schema

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Keys are in camelCase; events of the log, as `store.record_damaged`, are not.
SETTING = re.compile(
    r"`((?:server|store|limits|push|retention|lease|log|openclaw)\.(?!json|\w*_)\w+)`"
)
REPOSITORY_PATH = re.compile(r"`((?:tests|bench|docs|src|requirements)/[\w./-]+)`")
SHELL_ONLY = {"cd", "chmod", "curl", "export", "journalctl", "mkdir", "openssl", "python"}
SHELL_ONLY |= {"cp", "createdb", "createuser", "docker", "kubectl", "pip", "systemctl", "useradd"}


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_event_of_the_log_has_a_meaning() -> None:
    page = (ROOT / "docs" / "reference" / "log-events.md").read_text(encoding="utf-8")
    meanings = dict(re.findall(r"^\| `([^`]+)` \| [a-z, ]+ \| ([^|]+) \|", page, re.MULTILINE))
    events = generator().log_events()
    assert sorted(events.keys() - {name for name, one in meanings.items() if one.strip()}) == []
    # Events in the texts of other modules count, not only those of `log.info("...")`.
    assert {"request.refused", "http.connection_refused", "a2a.remote_agent.refused"} <= set(events)


def test_generated_parts_are_up_to_date() -> None:
    stale = [name_of(page) for page in generator().stale_pages()]
    assert stale == [], "run .venv/bin/python docs/generate.py"


def test_every_setting_has_a_meaning_on_its_page() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.count(" | ") == 3]
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_of_the_repository_exist(page: Path) -> None:
    named = REPOSITORY_PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = LINK.findall(page.read_text(encoding="utf-8"))
        waiting += [
            (page.parent / one.partition("#")[0]).resolve() for one in targets if "://" not in one
        ]
    assert [name_of(page) for page in PAGES if page not in reached] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_settings_in_the_text_exist(page: Path) -> None:
    definitions = settings_schema()["$defs"]
    sections = {
        name: definitions[member["$ref"].rpartition("/")[2]]["properties"]
        for name, member in settings_schema()["properties"].items()
        if "$ref" in member
    }
    text = page.read_text(encoding="utf-8")
    named = set(SETTING.findall(text)) - generator().log_events().keys()
    unknown = [one for one in named if one.partition(".")[2] not in sections[one.partition(".")[0]]]
    assert unknown == []


@pytest.mark.parametrize("block", blocks("json5"), ids=lambda block: block.place)
def test_settings_files_on_pages_are_right(block: Block, tmp_path: Path) -> None:
    for name in ("alice.token", "alice.new.token"):
        (tmp_path / name).write_text(f"the long secret of {name}", encoding="utf-8")
        (tmp_path / name).chmod(0o600)
    file = tmp_path / "openclaw-a2a.json5"
    file.write_text(block.text, encoding="utf-8")
    secrets = {"ALICE_TOKEN": "a-long-token-of-alice", "BOB_TOKEN": "a-long-token-of-bob"}
    secrets["DATABASE_PASSWORD"] = "the-password-of-the-database"
    loaded = load_settings(file, environ=secrets)
    assert loaded.warnings == ()
    agents = {account.default_agent_id for account in loaded.settings.accounts}
    assert agents <= loaded.settings.agents.keys()


@pytest.mark.parametrize("block", blocks("json5"), ids=lambda block: block.place)
def test_accounts_on_pages_say_whether_they_make_tasks(block: Block) -> None:
    channels = pyjson5.decode(block.text).get("channels", {})
    accounts = channels.get("a2a", {}).get("accounts", {})
    assert [name for name, account in accounts.items() if "agentStyle" not in account] == []


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_programs_on_pages_are_python(block: Block) -> None:
    compile(block.text, block.place, "exec")


def own_commands() -> list[tuple[str, list[str]]]:
    """The command lines that run our own command, without variables and redirections."""
    found: list[tuple[str, list[str]]] = []
    for place, words in commands():
        while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
            words = words[1:]
        kept = [word for word in words if not re.match(r"\d?>", word)]
        if kept and kept[0].rpartition("/")[2] == "openclaw-a2a":
            found.append((place, kept[1:]))
    return found


@pytest.fixture(scope="module")
def app() -> App:
    return build_commands()


@pytest.mark.parametrize(("place", "words"), own_commands())
def test_commands_on_pages_exist_with_their_options(app: App, place: str, words: list[str]) -> None:
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        pytest.fail(f"{place}: openclaw-a2a {' '.join(words)}: {error}")


def test_other_commands_on_pages_are_those_of_the_shell_or_of_dev() -> None:
    script = (ROOT / "dev").read_text(encoding="utf-8")
    known = set(re.findall(r"^\./dev ([a-z]+)", script, flags=re.MULTILINE))
    for place, words in commands():
        rest = [word for word in words if not re.fullmatch(r"[A-Z_0-9]+=.*", word)]
        first = rest[0].rpartition("/")[2]
        if first == "dev":
            assert rest[1] in known, place
        else:
            assert first in SHELL_ONLY | {"openclaw-a2a"}, f"{place}: {first}"


def test_no_page_ends_processes_by_name() -> None:
    named = [name_of(page) for page in PAGES if re.search("pkill|killall", page.read_text("utf-8"))]
    assert named == []


def test_dev_commands_in_the_text_exist() -> None:
    script = (ROOT / "dev").read_text(encoding="utf-8")
    known = set(re.findall(r"^\./dev ([a-z]+)", script, flags=re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"\./dev ([a-z]+)", page.read_text(encoding="utf-8")))
        assert named <= known, name_of(page)


def test_codes_of_the_command_line_are_on_the_page_of_errors() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    sources = "".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("cli/*.py"))
    codes = set(re.findall(r'"code": "([a-z-]+)"', sources))
    assert sorted(code for code in codes if f"`{code}`" not in page) == []
