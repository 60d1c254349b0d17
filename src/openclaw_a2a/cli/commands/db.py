"""`db`: the schema of the store."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.errors import DONE
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message
from openclaw_a2a.settings import Settings, StoreKind, load_settings

app = App(name="db", help="Upgrade the schema of the store.")


@app.command
def upgrade(
    *,
    plan: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Show the steps, change nothing.")
    ] = False,
    config: ConfigFlag = None,
    data: Annotated[Path | None, Parameter(help="The data folder.")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Bring the store to the newest schema, after a backup; the gateway must be stopped.

    `up` does the same when it starts.
    """
    from openclaw_a2a.store.sqlite import migrate

    overrides = {"data": str(data.expanduser().absolute())} if data else {}
    settings = load_settings(config, overrides=overrides).settings
    stores = {
        str(path): migrate.plan_upgrade(path) if plan else _upgrade(path)
        for path in databases(settings)
    }
    if as_json:
        rows = [{"path": path, "steps": steps} for path, steps in stores.items()]
        print_json({"plan": plan, "stores": rows})
        return DONE
    if not stores:
        print_message(f"A store of kind {settings.store.kind.value} has no schema to upgrade.")
    for path, steps in stores.items():
        _show_steps(path, steps, plan=plan)
    return DONE


def databases(settings: Settings) -> list[Path]:
    """The databases of the gateway and of accounts that have their own."""
    stores = [settings.store, *(account.task_store for account in settings.accounts)]
    paths = [one.path for one in stores if one is not None and one.kind is StoreKind.SQLITE]
    return [path for path in paths if path is not None]


def _upgrade(path: Path) -> list[str]:
    from openclaw_a2a.store.sqlite import migrate

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return migrate.upgrade_file(path)


def _show_steps(path: str, steps: list[str], *, plan: bool) -> None:
    if not steps:
        print_data(f"{path} has the newest schema.")
        return
    print_data(
        f"{path}: {'would take' if plan else 'took'} {len(steps)} step{'s'[: len(steps) > 1]}"
    )
    for step in steps:
        print_data(f"  {step}")
