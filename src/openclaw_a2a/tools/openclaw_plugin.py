"""Our plugin on OpenClaw's side: whether it is there, and how it gets there."""

import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from openclaw_a2a.auth import tool_tokens
from openclaw_a2a.auth.tool_tokens import TokenKind, ToolTokens
from openclaw_a2a.model.errors import AgentFailed, GatewayError, SettingsInvalid
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings import Settings, base_url
from openclaw_a2a.settings.loading.environment import process_environment
from openclaw_a2a.settings.openclaw.discovery import PluginConfig, read_plugin_config

PLUGIN_FOLDER = Path(__file__).parent / "plugin"
"""The files of the plugin, where OpenClaw loads them from."""

_HERE = os.path.realpath(PLUGIN_FOLDER)
_COMMAND_S = 300.0
_ANSWER_S = 5.0
_MOST_BYTES = 4 * 1024 * 1024
_HOLDER = "openclaw-plugin"


class _Manifest(msgspec.Struct, frozen=True):
    id: str
    contracts: dict[str, tuple[str, ...]]


_MANIFEST = msgspec.json.decode(
    (PLUGIN_FOLDER / "openclaw.plugin.json").read_bytes(), type=_Manifest
)
PLUGIN_ID = _MANIFEST.id
PLUGIN_TOOLS = _MANIFEST.contracts["tools"]


class PluginInstallation(msgspec.Struct, frozen=True):
    """What has to be so that OpenClaw's agents have our tools, and what of it is not yet.

    `has_token` is false when the plugin has no token that our gateway accepts.
    """

    config: Path
    options: JsonObject
    data: Path
    found: PluginConfig
    has_token: bool

    @property
    def is_linked(self) -> bool:
        """True when OpenClaw loads the plugin from our folder."""
        return self.found.loads_from(PLUGIN_FOLDER) and self.found.is_enabled

    @property
    def patch(self) -> JsonObject:
        """What OpenClaw's config needs; empty when it has it all."""
        wanted: JsonObject = {}
        if any(self.found.options.get(key) != value for key, value in self.options.items()):
            wanted["plugins"] = {"entries": {PLUGIN_ID: {"enabled": True, "config": self.options}}}
        if not self.found.allows_tools(PLUGIN_TOOLS):
            # OpenClaw takes one of the two lists, never both.
            key = "allow" if self.found.allowed else "alsoAllow"
            known = self.found.allowed or self.found.added
            wanted["tools"] = {key: [*known, *(one for one in PLUGIN_TOOLS if one not in known)]}
        others = [path for path in self.found.paths if not _is_left_over(path)]
        if len(others) < len(self.found.paths):
            paths = (
                others if self.found.loads_from(PLUGIN_FOLDER) else [*others, str(PLUGIN_FOLDER)]
            )
            wanted.setdefault("plugins", {})["load"] = {"paths": paths}
        return wanted

    @property
    def is_forbidden(self) -> bool:
        """True when somebody does not want the plugin; one that was taken out may come again."""
        return self.found.is_denied or (
            self.found.is_disabled and self.found.loads_from(PLUGIN_FOLDER)
        )

    @property
    def is_complete(self) -> bool:
        """True when nothing is left to do."""
        return self.has_token and self.is_linked and not self.patch

    def commands(self) -> tuple[str, ...]:
        """What is done, in the words of a shell."""
        patch = msgspec.json.encode(self.patch).decode()
        return (
            *(() if self.has_token else (f"a new token goes to {self.options['tokenFile']}",)),
            *((" ".join(("openclaw", *_LINK)),) if not self.is_linked else ()),
            *((f"openclaw config patch --stdin <<< '{patch}'",) if self.patch else ()),
        )

    async def install(self) -> None:
        """Make it so. Raises: AgentFailed (OpenClaw's command), SettingsInvalid (a file)."""
        if not self.has_token:
            await anyio.to_thread.run_sync(_make_token, self.data, Path(self.options["tokenFile"]))
        variables = {**process_environment(None), "OPENCLAW_CONFIG_PATH": str(self.config)}
        if not self.is_linked:
            await _run(_LINK, b"", variables)
        if self.patch:
            patch = msgspec.json.encode(self.patch)
            await _run(("config", "patch", "--stdin"), patch, variables)


_LINK = ("plugins", "install", "--link", str(PLUGIN_FOLDER), "--force", "--accept-capabilities")


def plan_installation(settings: Settings, config: Path) -> PluginInstallation:
    """What there is to do for the OpenClaw with this config; nothing is changed."""
    folder = settings.data / "openclaw-plugin"
    token_file = folder / "token"
    options: JsonObject = {
        "url": base_url(settings.server.host, settings.server.port),
        "tokenFile": str(token_file),
        "tableFile": str(folder / "tools.json"),
    }
    return PluginInstallation(
        config=config,
        options=options,
        data=settings.data,
        found=read_plugin_config(PLUGIN_ID, config),
        has_token=_is_known(settings.data, token_file),
    )


def _is_known(data: Path, token_file: Path) -> bool:
    """True when the file holds a token that our gateway takes for a host's."""
    try:
        text = token_file.read_bytes().strip()
        token = ToolTokens(data / tool_tokens.TOOL_TOKENS_FILE).identify(text)
    except (OSError, GatewayError):
        return False
    return token is not None and token.kind is TokenKind.HOST


def _make_token(data: Path, place: Path) -> None:
    """A new token, in a file for this user alone; the one before it is good no more."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = ToolTokens(data / tool_tokens.TOOL_TOKENS_FILE)
        known.revoke(_HOLDER)
        handle, draft = tempfile.mkstemp(dir=place.parent, prefix=".token-")
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(known.create(_HOLDER, TokenKind.HOST) + "\n")
        Path(draft).replace(place)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsInvalid(f"{place} cannot be written: {reason}; set data to another") from None


async def _run(words: Sequence[str], given: bytes, variables: dict[str, str]) -> None:
    shown = " ".join(("openclaw", *words))
    try:
        with anyio.fail_after(_COMMAND_S):
            done = await anyio.run_process(
                ("openclaw", *words), input=given, check=False, env=variables
            )
    except (OSError, TimeoutError) as error:
        reason = str(error) or "it took too long"
        raise AgentFailed(f"openclaw could not be run ({reason}); run: {shown}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-500:]
        raise AgentFailed(f"{shown} failed ({said}); see: openclaw doctor")


def _is_left_over(path: str) -> bool:
    """True for the plugin of another install of this package: OpenClaw can load only one."""
    place = Path(path).expanduser()
    return place.parts[-3:] == PLUGIN_FOLDER.parts[-3:] and os.path.realpath(place) != _HERE


class PluginAccess(msgspec.Struct, frozen=True):
    """What the gateway says to the plugin's token; `trouble` is empty when all is well."""

    tools: tuple[str, ...] = ()
    problem: str = ""
    is_reached: bool = False


def check_plugin_access(options: JsonObject) -> PluginAccess:
    """Ask the gateway for its tools, as the plugin does."""
    url, place = str(options.get("url", "")), str(options.get("tokenFile", ""))
    try:
        token = Path(place).read_text("ascii").strip()
    except (OSError, ValueError):
        return PluginAccess(problem=f"the token in {place} cannot be read; {_AGAIN}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.addheaders = [("authorization", f"Bearer {token}")]
    try:
        with opener.open(f"{url}/tools", timeout=_ANSWER_S) as page:
            listed = msgspec.json.decode(page.read(_MOST_BYTES), type=_Listed)
    except urllib.error.HTTPError as error:
        with suppress(OSError):
            error.close()
        if error.code in {401, 403}:
            return PluginAccess(problem=f"its token is not accepted; {_AGAIN}", is_reached=True)
        return PluginAccess(
            problem=f"{url}/tools answers HTTP {error.code}; {_OFFER}", is_reached=True
        )
    except (OSError, ValueError, http.client.HTTPException, msgspec.MsgspecError):
        return PluginAccess(problem=f"no gateway answers at {url}; start it with: openclaw-a2a up")
    return PluginAccess(tuple(one.name for one in listed.tools), is_reached=True)


_AGAIN = "make a new one with: openclaw-a2a connect openclaw"
_OFFER = "set outbound.enabled or tools.agentToAgent.enabled, and restart the gateway"


class _ListedTool(msgspec.Struct, frozen=True):
    name: str


class _Listed(msgspec.Struct, frozen=True):
    tools: tuple[_ListedTool, ...]
