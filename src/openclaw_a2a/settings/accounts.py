"""Reads the accounts of the channel.

A wrong value of a descriptive key is a warning and the default is used, because existing files of
OpenClaw users must keep working; a wrong value that changes behaviour is a problem.
"""

import re
from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec

from openclaw_a2a.model.card import AgentSkill
from openclaw_a2a.model.ids import AccountId, AgentId, Json, JsonObject
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_list,
    is_object,
    join_path,
    json_kind,
    one_of,
    values_of,
)
from openclaw_a2a.settings.file_schema import (
    ACCOUNT_ID,
    TEXT_MODES,
    AccountKeys,
    SkillKeys,
    StoreKeys,
    names_of,
)
from openclaw_a2a.settings.files import expand_path, is_absolute, normalize_base_url
from openclaw_a2a.settings.sections import (
    Account,
    AgentSettings,
    AgentStyle,
    OriginRoutingPolicy,
    StoreKind,
    StoreSettings,
)

_INVALID_IN_PATH = re.compile(r"[\s?#%{}\\]|//|[^\x21-\x7e]")


class LenientReader:
    """Reads members of one object; a wrong value is a warning, and the default is used."""

    def __init__(self, path: str, values: JsonObject, *, collector: ProblemCollector) -> None:
        self._path = path
        self._values = values
        self._collector = collector

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean."""
        value = self._values.get(key, default)
        if isinstance(value, bool):
            return value
        self._wrong(key, "true or false", value)
        return default

    def count(self, key: str, *, default: int) -> int:
        """An integer of at least 1."""
        value = self._values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        self._wrong(key, "a whole number from 1", value)
        return default

    def text(self, key: str) -> str | None:
        """The trimmed string; None when it is absent, blank or no string."""
        value = self._values.get(key, "")
        if not isinstance(value, str):
            self._wrong(key, "a string", value)
            return None
        return value.strip() or None

    def route(self, key: str) -> str | None:
        """A URL path with its leading slash; None when the default is to be used."""
        text = self.text(key)
        if text is None:
            return None
        if _INVALID_IN_PATH.search(text):
            message = "has characters that a plain path cannot have; the default is used"
            self._collector.warning(join_path(self._path, key), message, "format")
            return None
        return text if text.startswith("/") else f"/{text}"

    def texts(self, key: str, *, default: tuple[str, ...]) -> tuple[str, ...]:
        """The distinct strings of a list, trimmed; the default when none is left."""
        if key not in self._values:
            return default
        return self._strings(key, self._values[key]) or default

    def skills(self, key: str) -> tuple[SkillKeys, ...]:
        """The skills that have an id and a name."""
        value = self._values.get(key, [])
        if not is_list(value):
            self._wrong(key, "a list", value)
            return ()
        found = (self._skill(f"{key}[{index}]", one) for index, one in enumerate(value))
        return tuple(skill for skill in found if skill is not None)

    def _skill(self, key: str, value: Json) -> SkillKeys | None:
        path = join_path(self._path, key)
        if not is_object(value):
            self._collector.warning(path, "is not an object and is left out", "type")
            return None
        self._collector.unknown_keys(path, value, names_of(SkillKeys))
        inner = LenientReader(path, value, collector=self._collector)
        skill_id, name = inner.text("id"), inner.text("name")
        if skill_id is None or name is None:
            self._collector.warning(path, "has no id or no name and is left out", "required")
            return None
        return SkillKeys(
            id=skill_id,
            name=name,
            description=inner.text("description") or "",
            tags=inner.texts("tags", default=()),
            examples=inner.texts("examples", default=()),
        )

    def _strings(self, key: str, value: Json) -> tuple[str, ...]:
        if not is_list(value):
            self._wrong(key, "a list of strings", value)
            return ()
        strings: list[str] = []
        for index, item in enumerate(value):
            if isinstance(item, str):
                strings.append(item.strip())
            else:
                self._collector.warning(
                    join_path(self._path, f"{key}[{index}]"),
                    f"must be a string, not {json_kind(item)}; it is left out",
                    "type",
                )
        return tuple(dict.fromkeys(text for text in strings if text))

    def _wrong(self, key: str, expected: str, value: Json) -> None:
        message = f"must be {expected}, not {json_kind(value)}; the default is used"
        self._collector.warning(join_path(self._path, key), message, "type")


DEFAULT_ID = AccountId("default")
_REMOVED_KEYS = ("restPath", "capabilities", "auth")
_DESCRIPTION = "Answers messages with an agent of this gateway."
_MEDIA_TYPE = re.compile(r"(\*/\*|[\w!#$&^.+-]+/(\*|[\w!#$&^.+-]+))", re.ASCII)
_CHAT = SkillKeys(
    id="chat",
    name="Chat",
    description="Talk to the agent in plain language or with structured data.",
    tags=("chat", "openclaw"),
    examples=("What can you do?",),
)
_Choice = TypeVar("_Choice", bound=Enum)


class AccountDefaults(msgspec.Struct, frozen=True):
    """What accounts inherit from the rest of the settings."""

    public_base_url: str
    agents: dict[AgentId, AgentSettings]
    folder: Path


def read_accounts(
    path: str, values: JsonObject, *, inherited: AccountDefaults, collector: ProblemCollector
) -> tuple[Account, ...]:
    """The accounts, sorted by id; without any, one `default` in style `task-generating`."""
    if not values:
        reader = AccountReader(DEFAULT_ID, {"agentStyle": "task-generating"}, collector=collector)
        return (reader.read(inherited),)
    accounts: list[Account] = []
    for name in sorted(values):
        place = join_path(path, name)
        if not re.fullmatch(ACCOUNT_ID, name):
            collector.problem(place, "an account's id is 1 to 64 of A-Z a-z 0-9 _ . -", "name")
        members = collector.as_object(place, values[name])
        accounts.append(
            AccountReader(AccountId(name), members, collector=collector).read(inherited)
        )
    return tuple(accounts)


class AccountReader(LenientReader):
    """Reads one account: descriptive keys leniently, the others strictly."""

    def __init__(
        self, account_id: AccountId, values: JsonObject, *, collector: ProblemCollector
    ) -> None:
        super().__init__(f"channels.a2a.accounts.{account_id}", values, collector=collector)
        self._id = account_id

    def read(self, inherited: AccountDefaults) -> Account:
        """The account, with defaults for what was left out."""
        self._check_keys()
        enabled = self.flag("enabled", default=True)
        address = self._public_base_url() or inherited.public_base_url or None
        root = "" if self._id == DEFAULT_ID else f"/agents/{self._id}"
        default_card_path = f"{root}/.well-known/agent-card.json"
        card_path = self.route("agentCardPath") or default_card_path
        input_modes = self._input_modes()
        output_modes = self.texts("defaultOutputModes", default=TEXT_MODES)
        label = self.text("label") or self._id
        description = self.text("description") or _DESCRIPTION
        skills = self.skills("skills") or (_CHAT,)
        customized = {
            "label": label != self._id,
            "description": description != _DESCRIPTION,
            "skills": skills != (_CHAT,),
        }
        return Account(
            id=self._id,
            enabled=enabled,
            label=label,
            description=description,
            public_base_url=address,
            default_agent_id=self._agent_id(inherited.agents, enabled=enabled),
            protocol_version=self.text("protocolVersion") or "0.3.0",
            agent_card_path=card_path,
            agent_card_alias=f"{root}/.well-known/agent.json"
            if card_path == default_card_path
            else None,
            json_rpc_path=self.route("jsonRpcPath") or f"{root}/a2a/jsonrpc",
            rest_path=f"{root}/a2a/rest",
            max_body_bytes=self.count("maxBodyBytes", default=1_048_576),
            default_input_modes=input_modes,
            default_output_modes=output_modes,
            push_notifications=self.flag("pushNotifications", default=True),
            agent_style=self._choice("agentStyle", AgentStyle.HYBRID),
            origin_routing_policy=self._choice(
                "originRoutingPolicy", OriginRoutingPolicy.SUPPRESS_GENERIC_FOLLOWUP
            ),
            skills=_with_modes(skills, input_modes, output_modes),
            task_store=self._task_store(inherited.folder),
            session_store=self.text("sessionStore"),
            not_running_reason=self._not_running_reason(address, enabled=enabled),
            customized=tuple(key for key, is_own in customized.items() if is_own),
        )

    def _not_running_reason(self, address: str | None, *, enabled: bool) -> str | None:
        if not enabled:
            return f"the account {self._id} is not enabled"
        if address is None:
            return f"the account {self._id} has no publicBaseUrl and the server has none either"
        return None

    def _check_keys(self) -> None:
        known = (*names_of(AccountKeys), *_REMOVED_KEYS)
        self._collector.unknown_keys(self._path, self._values, known)
        for key in _REMOVED_KEYS:
            if key in self._values:
                self._problem(key, "is no longer a setting; remove the key", "removed")

    def _problem(self, key: str, message: str, keyword: str = "type") -> None:
        self._collector.problem(join_path(self._path, key), message, keyword)

    def _public_base_url(self) -> str | None:
        text = self.text("publicBaseUrl")
        address = normalize_base_url(text) if text else None
        if text and address is None:
            path = join_path(self._path, "publicBaseUrl")
            self._collector.warning(
                path, "is not an http(s) address; the server's is used", "format"
            )
        return address

    def _agent_id(self, agents: dict[AgentId, AgentSettings], *, enabled: bool) -> AgentId:
        text = self.text("defaultAgentId")
        if text is not None:
            if text not in agents:
                message = f"there is no agent {text}; the agents are {', '.join(agents)}"
                self._problem("defaultAgentId", message, "reference")
            return AgentId(text)
        if len(agents) == 1 or "main" in agents:
            return AgentId("main") if "main" in agents else next(iter(agents))
        if enabled:
            message = f"is needed, because no agent is called main: one of {', '.join(agents)}"
            self._problem("defaultAgentId", message, "required")
        return next(iter(agents))

    def _choice(self, key: str, default: _Choice) -> _Choice:
        value = self._values.get(key, default.value)
        for member in type(default):
            if value == member.value or (isinstance(value, str) and value.strip() == member.value):
                return member
        self._problem(key, one_of(values_of(type(default))), "enum")
        return default

    def _input_modes(self) -> tuple[str, ...]:
        value = self._values.get("defaultInputModes", list(TEXT_MODES))
        if not is_list(value):
            return self.texts("defaultInputModes", default=TEXT_MODES)
        modes: list[str] = []
        for index, mode in enumerate(value):
            if not isinstance(mode, str):
                self._bad_mode(index, f"must be a string, not {json_kind(mode)}")
            elif mode.strip() and not _MEDIA_TYPE.fullmatch(mode.strip()):
                self._bad_mode(index, f"{mode.strip()!r} is not a media type; write type/subtype")
            elif mode.strip():
                modes.append(mode.strip().lower())
        return tuple(dict.fromkeys(modes)) or TEXT_MODES

    def _bad_mode(self, index: int, message: str) -> None:
        self._problem(f"defaultInputModes[{index}]", message, "media-type")

    def _task_store(self, folder: Path) -> StoreSettings | None:
        if "taskStore" not in self._values:
            return None
        value = self._values["taskStore"]
        if not is_object(value):
            self._problem("taskStore", f"must be an object, not {json_kind(value)}")
            return None
        place = join_path(self._path, "taskStore")
        self._collector.unknown_keys(place, value, names_of(StoreKeys))
        kind = read_store_kind(place, value, default=StoreKind.MEMORY, collector=self._collector)
        if kind in {None, StoreKind.MEMORY}:
            return StoreSettings(kind=StoreKind.MEMORY)
        path = self._store_path(value.get("path"), kind, folder)
        return StoreSettings(kind=kind, path=path) if kind and path else None

    def _store_path(self, value: Json, kind: StoreKind | None, folder: Path) -> Path | None:
        text = value.strip() if isinstance(value, str) else ""
        if text and is_absolute(text):
            try:
                return expand_path(text, folder)
            except ValueError as error:
                self._problem("taskStore.path", f"cannot be used: {error}", "path")
                return None
        needed = kind.value if kind else "store"
        self._problem("taskStore.path", f"a {needed} store needs an absolute path", "path")
        return None


def _with_modes(
    skills: tuple[SkillKeys, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> tuple[AgentSkill, ...]:
    return tuple(
        AgentSkill(
            id=skill.id,
            name=skill.name,
            description=skill.description or skill.name,
            tags=skill.tags,
            examples=skill.examples,
            input_modes=inputs,
            output_modes=outputs,
        )
        for skill in skills
    )


def read_store_kind(
    path: str, values: JsonObject, *, default: StoreKind, collector: ProblemCollector
) -> StoreKind | None:
    """The kind of a store; None, with a problem, when it is not supported."""
    value = values.get("kind", default.value)
    if value == "postgres":
        collector.problem(
            join_path(path, "kind"),
            f"postgres is not available in this version; {one_of(values_of(StoreKind))}",
            "unavailable",
        )
        return None
    if not isinstance(value, str) or value.strip() not in values_of(StoreKind):
        collector.problem(join_path(path, "kind"), one_of(values_of(StoreKind)), "enum")
        return None
    return StoreKind(value.strip())
