"""Settings: one frozen `Settings` from defaults, file, environment and flags."""

from openclaw_a2a.settings.describe import Described, describe, effective, settings_schema
from openclaw_a2a.settings.environment import Surroundings, read_surroundings
from openclaw_a2a.settings.load import (
    Examined,
    Loaded,
    LocalGateway,
    examine_settings,
    load_settings,
    local_gateway,
    server_address,
)
from openclaw_a2a.settings.paths import base_url, clean_url, is_loopback
from openclaw_a2a.settings.secret import Secret
from openclaw_a2a.settings.shape import (
    Account,
    AgentSettings,
    AgentStyle,
    LeaseSettings,
    Limits,
    LogSettings,
    OriginRoutingPolicy,
    PeerSettings,
    PushSettings,
    RetentionSettings,
    Server,
    Settings,
    StoreKind,
    StoreSettings,
    ToolSettings,
)

__all__ = [
    "Account",
    "AgentSettings",
    "AgentStyle",
    "Described",
    "Examined",
    "LeaseSettings",
    "Limits",
    "Loaded",
    "LocalGateway",
    "LogSettings",
    "OriginRoutingPolicy",
    "PeerSettings",
    "PushSettings",
    "RetentionSettings",
    "Secret",
    "Server",
    "Settings",
    "StoreKind",
    "StoreSettings",
    "Surroundings",
    "ToolSettings",
    "base_url",
    "clean_url",
    "describe",
    "effective",
    "examine_settings",
    "is_loopback",
    "load_settings",
    "local_gateway",
    "read_surroundings",
    "server_address",
    "settings_schema",
]
