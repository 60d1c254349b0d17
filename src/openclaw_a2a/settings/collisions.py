"""Things that only show when the parts are put together: shared addresses and shared stores."""

from collections.abc import Iterator
from pathlib import Path

from openclaw_a2a.settings.report import Report
from openclaw_a2a.settings.shape import Account, Settings

_GATEWAY_ROUTES = ("/healthz", "/readyz", "/metrics", "/agents")


def check_routes(accounts: tuple[Account, ...], report: Report) -> None:
    """Every address of the accounts that are enabled has one owner."""
    owners: dict[str, str] = dict.fromkeys(_GATEWAY_ROUTES, "the gateway itself")
    for account in accounts:
        if not account.enabled:
            continue
        for key, path in _routes(account):
            place = f"channels.a2a.accounts.{account.id}.{key}"
            owner = owners.get(path) or _owner_of_rest(path, accounts)
            if owner is not None:
                message = f"{path} is already used by {owner}; give one of them another path"
                report.problem(place, message, "collision")
            owners.setdefault(path, f"account {account.id} ({key})")


def _routes(account: Account) -> Iterator[tuple[str, str]]:
    yield "agentCardPath", account.agent_card_path
    if account.agent_card_alias is not None:
        yield "agentCardPath", account.agent_card_alias
    yield "jsonRpcPath", account.json_rpc_path


def _owner_of_rest(path: str, accounts: tuple[Account, ...]) -> str | None:
    """The account whose HTTP+JSON door (everything below its path) the path lies in."""
    for account in accounts:
        if account.enabled and f"{path}/".startswith(f"{account.rest_path}/"):
            return f"account {account.id} (its HTTP+JSON door)"
    return None


def check_stores(settings: Settings, report: Report) -> None:
    """Every path of a store, of the gateway or of any account, has one owner."""
    owners: dict[Path, str] = {}
    if settings.store.path is not None:
        owners[settings.store.path] = "the gateway (store); leave taskStore out to share it"
    for account in settings.accounts:
        path = account.task_store.path if account.task_store else None
        if path is None:
            continue
        if path in owners:
            place = f"channels.a2a.accounts.{account.id}.taskStore.path"
            report.problem(place, f"{path} is already used by {owners[path]}", "collision")
        owners.setdefault(path, f"account {account.id}")
    folder = Path(settings.opt.directory)
    if settings.opt.enabled and folder in owners:
        report.problem(
            "opt.directory", f"{folder} is already used by {owners[folder]}", "collision"
        )
