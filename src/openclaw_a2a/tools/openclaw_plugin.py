"""Installs the OpenClaw plugin, and checks whether it is installed and accepted."""

import os
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import msgspec

from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.model.errors import AgentFailed, GatewayError, SettingsInvalid
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.net.http_client import SyncHttpClient
from openclaw_a2a.settings import Settings, base_url
from openclaw_a2a.settings.files import write_private_file
from openclaw_a2a.settings.openclaw_config import PluginConfig, read_plugin_config
from openclaw_a2a.settings.sources import process_environment
from openclaw_a2a.tools.registry import ToolList

PLUGIN_FOLDER = Path(__file__).parent / "plugin"
"""The files of the plugin, where OpenClaw loads them from."""

_HERE = os.path.realpath(PLUGIN_FOLDER)
_COMMAND_TIMEOUT_S = 300.0
_RESPONSE_TIMEOUT_S = 5.0
_MAX_BYTES = 4 * 1024 * 1024
_HOLDER = "openclaw-plugin"
_PLUGIN_FOLDER = "openclaw-plugin"
_TABLE_FILE = "tools.json"


_MANIFEST: JsonObject = msgspec.json.decode((PLUGIN_FOLDER / "openclaw.plugin.json").read_bytes())
PLUGIN_ID: str = _MANIFEST["id"]
PLUGIN_TOOLS: tuple[str, ...] = tuple(_MANIFEST["contracts"]["tools"])


class PluginInstallation(msgspec.Struct, frozen=True):
    """The state of the plugin in one OpenClaw, and the steps that are left to install it.

    `has_token` is false when the plugin has no token that this gateway accepts.
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
        """The changes that OpenClaw's config needs; empty when it needs none."""
        wanted: JsonObject = {}
        if any(self.found.options.get(key) != value for key, value in self.options.items()):
            wanted["plugins"] = {"entries": {PLUGIN_ID: {"enabled": True, "config": self.options}}}
        if not self.found.allows_tools(PLUGIN_TOOLS):
            # OpenClaw takes one of the two lists, never both.
            key = "allow" if self.found.allowed else "alsoAllow"
            known = self.found.allowed or self.found.added
            wanted["tools"] = {key: [*known, *(one for one in PLUGIN_TOOLS if one not in known)]}
        others = [path for path in self.found.paths if not _is_other_installation(path)]
        if len(others) < len(self.found.paths):
            if not self.found.loads_from(PLUGIN_FOLDER):
                others.append(str(PLUGIN_FOLDER))
            wanted.setdefault("plugins", {})["load"] = {"paths": others}
        return wanted

    @property
    def is_forbidden(self) -> bool:
        """True when the plugin is denied or disabled; one that was uninstalled may be installed."""
        return self.found.is_denied or (
            self.found.is_disabled and self.found.loads_from(PLUGIN_FOLDER)
        )

    @property
    def is_complete(self) -> bool:
        """True when nothing is left to do."""
        return self.has_token and self.is_linked and not self.patch

    def commands(self) -> tuple[str, ...]:
        """The steps as shell commands."""
        steps: list[str] = []
        if not self.has_token:
            steps.append(f"a new token goes to {self.options['tokenFile']}")
        if not self.is_linked:
            steps.append(" ".join(("openclaw", *_LINK)))
        if self.patch:
            patch = msgspec.json.encode(self.patch).decode()
            steps.append(f"openclaw config patch --stdin <<< '{patch}'")
        return tuple(steps)

    async def install(self) -> None:
        """Carry out the steps. Raises: AgentFailed (a command), SettingsInvalid (a file)."""
        if not self.has_token:
            await anyio.to_thread.run_sync(_make_token, self.data, Path(self.options["tokenFile"]))
        variables = {**process_environment(None), "OPENCLAW_CONFIG_PATH": str(self.config)}
        if not self.is_linked:
            await run_openclaw(*_LINK, variables=variables)
        if self.patch:
            patch = msgspec.json.encode(self.patch)
            await run_openclaw(*CONFIG_PATCH, given=patch, variables=variables)
        # A gateway that runs already wrote no table for a plugin that was not there.
        offered = await anyio.to_thread.run_sync(check_plugin_access, self.options)
        if offered.content:
            write_tool_table(self.data, offered.content)


CONFIG_PATCH = ("config", "patch", "--stdin")
_LINK = ("plugins", "install", "--link", str(PLUGIN_FOLDER), "--force", "--accept-capabilities")


def plan_installation(settings: Settings, config: Path) -> PluginInstallation:
    """The steps for the OpenClaw with this config; nothing is changed."""
    folder = settings.data / _PLUGIN_FOLDER
    token_file = folder / "token"
    options: JsonObject = {
        "url": base_url(settings.server.host, settings.server.port),
        "tokenFile": str(token_file),
        "tableFile": str(folder / _TABLE_FILE),
    }
    try:
        text = token_file.read_bytes().strip()
        token = TokenStore(settings.data).find(text)
    except (OSError, GatewayError):
        token = None
    return PluginInstallation(
        config=config,
        options=options,
        data=settings.data,
        found=read_plugin_config(PLUGIN_ID, config),
        has_token=token is not None and token.kind is TokenKind.HOST,
    )


def write_tool_table(data: Path, content: bytes) -> None:
    """Tell the plugin of this data folder, if there is one, which tools the gateway offers now.

    The plugin reads the file at the start of each run: without it the first run after a change has
    the tools from before. Raises: OSError.
    """
    folder = data / _PLUGIN_FOLDER
    if folder.is_dir():
        write_private_file(folder / _TABLE_FILE, content)


def _make_token(data: Path, place: Path) -> None:
    """Write a new token to a file that only this user can read, and revoke the previous one."""
    try:
        known = TokenStore(data)
        known.revoke(_HOLDER)
        token = known.create(_HOLDER, TokenKind.HOST)
        write_private_file(place, f"{token}\n".encode("ascii"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsInvalid(f"{place} cannot be written: {reason}; set data to another") from None


async def run_openclaw(
    *words: str, given: bytes = b"", variables: Mapping[str, str] | None = None, instead: str = ""
) -> None:
    """Run a command of OpenClaw. `instead` is one for a person, to be run when it fails.

    Raises: AgentFailed.
    """
    shown = " ".join(("openclaw", *words))
    try:
        with anyio.fail_after(_COMMAND_TIMEOUT_S):
            done = await anyio.run_process(
                ("openclaw", *words), input=given, check=False, env=variables
            )
    except (OSError, TimeoutError) as error:
        reason = str(error) or "it took too long"
        message = f"openclaw could not be run ({reason}); run: {instead or shown}"
        raise AgentFailed(message) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-500:]
        advice = f"run: {instead}" if instead else "see: openclaw doctor"
        raise AgentFailed(f"{shown} failed ({said}); {advice}")


def _is_other_installation(path: str) -> bool:
    """True for the plugin of another installation of this package: OpenClaw can load only one."""
    place = Path(path).expanduser()
    return place.parts[-3:] == PLUGIN_FOLDER.parts[-3:] and os.path.realpath(place) != _HERE


class PluginAccess(msgspec.Struct, frozen=True):
    """Whether the gateway accepts the plugin's token; `problem` is empty when it does."""

    tools: tuple[str, ...] = ()
    problem: str = ""
    is_reached: bool = False
    content: bytes = b""
    """The list of tools as the gateway sent it."""


def check_plugin_access(options: JsonObject) -> PluginAccess:
    """List the gateway's tools with the plugin's token."""
    url, place = str(options.get("url", "")), str(options.get("tokenFile", ""))
    try:
        token = Path(place).read_text("ascii").strip()
    except (OSError, ValueError):
        return PluginAccess(problem=f"the token in {place} cannot be read; {_RECONNECT}")
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with SyncHttpClient(
            headers=headers, timeout=_RESPONSE_TIMEOUT_S, max_response_bytes=_MAX_BYTES
        ) as client:
            response = client.get(f"{url}/tools")
        if response.status_code in {401, 403}:
            return PluginAccess(problem=f"its token is not accepted; {_RECONNECT}", is_reached=True)
        if response.status_code != 200:
            problem = f"{url}/tools answers HTTP {response.status_code}; {_TURN_ON}"
            return PluginAccess(problem=problem, is_reached=True)
        listed = msgspec.json.decode(response.content, type=ToolList).tools
    except (OSError, ValueError, httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError):
        return PluginAccess(problem=f"no gateway answers at {url}; start it with: openclaw-a2a up")
    names = tuple(one.name for one in listed)
    return PluginAccess(names, is_reached=True, content=response.content)


_RECONNECT = "make a new one with: openclaw-a2a connect openclaw"
_TURN_ON = "set outbound.enabled or tools.agentToAgent.enabled, and restart the gateway"
