"""The section `outbound` for those who need nothing else of the settings."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings.load import local_gateway
from openclaw_a2a.settings.locate import invalid
from openclaw_a2a.settings.report import Report
from openclaw_a2a.settings.sources import read_layers


class OutboundSection(msgspec.Struct, frozen=True):
    """What the sources say of `outbound` together, and where.

    `origin` names the source of `outbound.targets` (`file NAME` or `environment NAME`), and is
    empty when none has any. `variables` is the environment that targets refer to.
    """

    values: JsonObject
    origin: str
    path: Path | None
    data: Path
    variables: Mapping[str, str]


def outbound_section(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None
) -> OutboundSection:
    """The section; only what it needs is read and checked.

    Raises:
        SettingsInvalid: the file cannot be read, or the section is no object.
    """
    report = Report()
    environment = os.environ if environ is None else environ
    layers = read_layers(path, overrides={}, environ=environment, report=report)
    values = report.as_object("outbound", layers.values.get("outbound", {}))
    if report.problems:
        raise invalid(report.problems, origins=layers.origins, path=layers.path)
    origin = layers.origins.get("outbound.targets", "")
    folder = local_gateway(path, environ=environment).data
    return OutboundSection(values, origin, layers.path, folder, environment)
