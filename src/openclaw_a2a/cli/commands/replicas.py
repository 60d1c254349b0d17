"""`replicas`: the gateways that share one store."""

from datetime import datetime
from typing import Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.options import DEFAULT_ADMIN, AdminOptions
from openclaw_a2a.cli.render.terminal import ItemTable
from openclaw_a2a.cli.resource import Resource
from openclaw_a2a.model.replica import ReplicaStatus

replicas = App(
    name="replicas",
    help="List the gateways that share one PostgreSQL, and drain one. Ids can be shortened "
    "to a unique prefix.",
)


def _lag(one: ReplicaStatus, _: datetime) -> str:
    return "asks" if one.lag_ms is None else f"{one.lag_ms:.1f} ms"


def _state(one: ReplicaStatus, _: datetime) -> str:
    return "draining" if one.is_draining else "live"


_REPLICAS = Resource[ReplicaStatus](
    path="replicas",
    noun="replica",
    item_type=ReplicaStatus,
    table=ItemTable(
        {
            "ID": lambda one, _: one.id + (" *" if one.is_this else ""),
            "NAME": lambda one, _: one.name,
            "STATE": _state,
            "LEASE": lambda one, _: f"{one.lease_left_seconds:.0f} s",
            "RUNS": lambda one, _: str(one.runs),
            "STREAMS": lambda one, _: str(one.streams),
            "NOTIFIED IN": _lag,
            "VERSION": lambda one, _: one.version,
            "AGENTS": lambda one, _: ", ".join(one.agents),
        },
        colours={"draining": "yellow"},
        optional=("VERSION", "AGENTS"),
    ),
    not_found="route-",
    list_hint="See which there are: openclaw-a2a replicas list",
    empty="No replica is alive.",
)


@replicas.command(name="list")
def list_replicas(*, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """List the gateways that share the store of this one (*), the oldest first."""
    return _REPLICAS.list(options)


@replicas.command
def drain(
    replica: Annotated[str, Parameter(help="The replica's id, or its beginning.")],
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Have a gateway accept nothing new; its runs end, and /readyz takes it out of a balancer."""
    return _REPLICAS.act(options, replica, "drain", done="drains")
