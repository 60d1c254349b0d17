"""Reads the accounts of the channel.

A wrong value of a descriptive key is a warning and the default is used, because existing files of
OpenClaw users must keep working; a wrong value that changes behaviour is a problem.
"""

import re
from enum import Enum
from typing import Annotated, TypeVar, get_args, get_origin

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
    TaskStoreKeys,
    names_of,
)
from openclaw_a2a.settings.files import is_absolute, normalize_base_url
from openclaw_a2a.settings.sections import (
    Account,
    AgentSettings,
    AgentStyle,
    OriginRoutingPolicy,
    StoreKind,
    StoreSettings,
)
from openclaw_a2a.settings.sources import SettingsReader

DEFAULT_ID = AccountId("default")
_REMOVED_KEYS = ("restPath", "capabilities", "auth")
_INVALID_IN_PATH = re.compile(r"[\s?#%{}\\]|//|[^\x21-\x7e]")
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
_TEXTS = tuple[str, ...]
_EXPECTED: dict[Json, str] = {
    bool: "true or false",
    int: "a whole number from 1",
    str: "a string",
    _TEXTS: "a list of strings",
}


def read_leniently(
    kind: type[msgspec.Struct], path: str, values: JsonObject, *, collector: ProblemCollector
) -> JsonObject:
    """The members of plain types, by their Python names; blank ones and wrong ones are left out.

    Strings are trimmed, numbers are at least 1, and of lists the distinct strings are kept. A
    wrong value is a warning.
    """
    members: JsonObject = {}
    for field in msgspec.structs.fields(kind):
        wanted = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        if wanted in _EXPECTED and field.encode_name in values:
            place, value = join_path(path, field.encode_name), values[field.encode_name]
            if (found := _read_member(wanted, place, value, collector)) is not None:
                members[field.name] = found
    return members


def _read_member(kind: Json, path: str, value: Json, collector: ProblemCollector) -> Json:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if (kind is bool and isinstance(value, bool)) or (kind is int and is_number and value >= 1):
        return value
    if kind is str and isinstance(value, str):
        return value.strip() or None
    if kind == _TEXTS and is_list(value):
        for index, item in enumerate(value):
            if not isinstance(item, str):
                message = f"must be a string, not {json_kind(item)}; it is left out"
                collector.warning(f"{path}[{index}]", message, "type")
        texts = (item.strip() for item in value if isinstance(item, str))
        return tuple(dict.fromkeys(filter(None, texts))) or None
    message = f"must be {_EXPECTED[kind]}, not {json_kind(value)}; the default is used"
    collector.warning(path, message, "type")
    return None


def read_accounts(
    reader: SettingsReader, agents: dict[AgentId, AgentSettings], *, public_base_url: str
) -> tuple[Account, ...]:
    """The accounts, sorted by id; without any, one `default` in style `task-generating`.

    `public_base_url` is the server's, for accounts without one.
    """
    values = reader.read_object("channels.a2a.accounts")
    accounts: list[Account] = []
    for name in sorted(values) or [DEFAULT_ID]:
        path = f"channels.a2a.accounts.{name}"
        if not re.fullmatch(ACCOUNT_ID, name):
            reader.problem(path, "an account's id is 1 to 64 of A-Z a-z 0-9 _ . -", "name")
        members = reader.as_object(path, values.get(name, {"agentStyle": "task-generating"}))
        account = AccountReader(AccountId(name), path, members, reader)
        accounts.append(account.read(public_base_url, agents))
    return tuple(accounts)


class AccountReader:
    """Reads one account."""

    def __init__(
        self, account_id: AccountId, path: str, values: JsonObject, reader: SettingsReader
    ) -> None:
        self._id = account_id
        self._path = path
        self._values = values
        self._reader = reader

    def read(self, public_base_url: str, agents: dict[AgentId, AgentSettings]) -> Account:
        """The account, with defaults for what was left out."""
        known = (*names_of(AccountKeys), *_REMOVED_KEYS)
        self._reader.unknown_keys(self._path, self._values, known)
        for key in _REMOVED_KEYS:
            if key in self._values:
                self._problem(key, "is no longer a setting; remove the key", "removed")
        keys = AccountKeys(**self._members())
        address = normalize_base_url(keys.public_base_url)
        if keys.public_base_url and address is None:
            message = "is not an http(s) address; the server's is used"
            self._warning("publicBaseUrl", message, "format")
        address = address or public_base_url or None
        root = "" if self._id == DEFAULT_ID else f"/agents/{self._id}"
        default_card_path = f"{root}/.well-known/agent-card.json"
        card_path = self._route("agentCardPath", keys.agent_card_path) or default_card_path
        reason = None
        if not keys.enabled:
            reason = f"the account {self._id} is not enabled"
        elif address is None:
            reason = f"the account {self._id} has no publicBaseUrl and the server has none either"
        customized = {
            "label": keys.label not in ("", self._id),
            "description": keys.description not in ("", _DESCRIPTION),
            "skills": keys.skills not in ((), (_CHAT,)),
        }
        return Account(
            id=self._id,
            enabled=keys.enabled,
            label=keys.label or self._id,
            description=keys.description or _DESCRIPTION,
            public_base_url=address,
            default_agent_id=self._agent_id(keys, agents),
            protocol_version=keys.protocol_version,
            agent_card_path=card_path,
            agent_card_alias=f"{root}/.well-known/agent.json"
            if card_path == default_card_path
            else None,
            json_rpc_path=self._route("jsonRpcPath", keys.json_rpc_path) or f"{root}/a2a/jsonrpc",
            rest_path=f"{root}/a2a/rest",
            max_body_bytes=keys.max_body_bytes,
            default_input_modes=keys.default_input_modes,
            default_output_modes=keys.default_output_modes,
            push_notifications=keys.push_notifications,
            agent_style=self._choice("agentStyle", AgentStyle.HYBRID),
            origin_routing_policy=self._choice(
                "originRoutingPolicy", OriginRoutingPolicy.SUPPRESS_GENERIC_FOLLOWUP
            ),
            skills=tuple(
                AgentSkill(
                    id=skill.id,
                    name=skill.name,
                    description=skill.description or skill.name,
                    tags=skill.tags,
                    examples=skill.examples,
                    input_modes=keys.default_input_modes,
                    output_modes=keys.default_output_modes,
                )
                for skill in keys.skills or (_CHAT,)
            ),
            task_store=self._task_store(),
            session_store=keys.session_store or None,
            not_running_reason=reason,
            strict03=keys.strict03,
            allowed_agents=self._allowed("allowedAgents"),
            allowed_skills=self._allowed("allowedSkills"),
            customized=tuple(key for key, is_own in customized.items() if is_own),
        )

    def _problem(self, key: str, message: str, keyword: str = "type") -> None:
        self._reader.problem(join_path(self._path, key), message, keyword)

    def _warning(self, key: str, message: str, keyword: str) -> None:
        self._reader.warning(join_path(self._path, key), message, keyword)

    def _members(self) -> JsonObject:
        """The members that are read leniently, the input modes and the skills."""
        lenient, modes = dict(self._values), self._values.get("defaultInputModes")
        if is_list(modes):
            del lenient["defaultInputModes"]
        members = read_leniently(AccountKeys, self._path, lenient, collector=self._reader)
        if is_list(modes):
            members["default_input_modes"] = self._input_modes(modes) or TEXT_MODES
        return {**members, "skills": self._skills(self._values.get("skills", []))}

    def _allowed(self, key: str) -> tuple[str, ...] | None:
        """A list of patterns. Not read leniently: a wrong one must not allow everything."""
        value: Json = self._values.get(key)
        if value is None:
            return None
        if not is_list(value) or not all(isinstance(one, str) and one.strip() for one in value):
            self._problem(key, "must be a list of names or patterns, each a text")
            return ()
        return tuple(map(str, value))

    def _input_modes(self, value: list[Json]) -> tuple[str, ...]:
        modes: list[str] = []
        for index, given in enumerate(value):
            mode = given.strip() if isinstance(given, str) else None
            if mode and _MEDIA_TYPE.fullmatch(mode):
                modes.append(mode.lower())
            elif mode != "":
                message = f"must be a string, not {json_kind(given)}"
                if mode is not None:
                    message = f"{mode!r} is not a media type; write type/subtype"
                self._problem(f"defaultInputModes[{index}]", message, "media-type")
        return tuple(dict.fromkeys(modes))

    def _skills(self, value: Json) -> tuple[SkillKeys, ...]:
        """The skills that have an id and a name."""
        if not is_list(value):
            message = f"must be a list, not {json_kind(value)}; the default is used"
            self._warning("skills", message, "type")
            return ()
        skills: list[SkillKeys] = []
        for index, given in enumerate(value):
            key = f"skills[{index}]"
            if not is_object(given):
                self._warning(key, "is not an object and is left out", "type")
                continue
            place = join_path(self._path, key)
            self._reader.unknown_keys(place, given, names_of(SkillKeys))
            members = read_leniently(SkillKeys, place, given, collector=self._reader)
            if members.keys() >= {"id", "name"}:
                skills.append(SkillKeys(**members))
            else:
                self._warning(key, "has no id or no name and is left out", "required")
        return tuple(skills)

    def _route(self, key: str, text: str) -> str | None:
        """A URL path with its leading slash; None when the default is to be used."""
        if _INVALID_IN_PATH.search(text):
            message = "has characters that a plain path cannot have; the default is used"
            self._warning(key, message, "format")
            return None
        return text if text.startswith("/") or not text else f"/{text}"

    def _agent_id(self, keys: AccountKeys, agents: dict[AgentId, AgentSettings]) -> AgentId:
        main, text = AgentId("main"), keys.default_agent_id
        if text:
            if text not in agents:
                message = f"there is no agent {text}; the agents are {', '.join(agents)}"
                self._problem("defaultAgentId", message, "reference")
            return AgentId(text)
        if main not in agents and len(agents) > 1 and keys.enabled:
            message = f"is needed, because no agent is called main: one of {', '.join(agents)}"
            self._problem("defaultAgentId", message, "required")
        return main if main in agents else next(iter(agents))

    def _choice(self, key: str, default: _Choice) -> _Choice:
        place = join_path(self._path, key)
        value = self._values.get(key, default.value)
        return read_enum(type(default), place, value, self._reader) or default

    def _task_store(self) -> StoreSettings | None:
        if "taskStore" not in self._values:
            return None
        value = self._values["taskStore"]
        if not is_object(value):
            self._problem("taskStore", f"must be an object, not {json_kind(value)}")
            return None
        place = join_path(self._path, "taskStore")
        self._reader.unknown_keys(place, value, names_of(TaskStoreKeys))
        given = value.get("kind", "memory")
        kind = read_enum(StoreKind, join_path(place, "kind"), given, self._reader)
        if kind is None or kind is StoreKind.MEMORY:
            return StoreSettings(kind=StoreKind.MEMORY)
        if kind is StoreKind.POSTGRES:
            message = (
                "an account cannot have a database of its own; leave taskStore out, and set store"
            )
            self._problem("taskStore.kind", message, "unavailable")
            return None
        text = value.get("path")
        if not isinstance(text, str) or not is_absolute(text.strip()):
            message = f"a {kind.value} store needs an absolute path"
            self._problem("taskStore.path", message, "path")
            return None
        path = self._reader.read_path(join_path(place, "path"), text)
        return StoreSettings(kind=kind, path=path) if path else None


def read_enum(
    kind: type[_Choice], path: str, value: Json, collector: ProblemCollector
) -> _Choice | None:
    """The member with this value; None, with a problem, when there is none."""
    if isinstance(value, str) and value.strip() in values_of(kind):
        return kind(value.strip())
    collector.problem(path, one_of(values_of(kind)), "enum")
    return None
