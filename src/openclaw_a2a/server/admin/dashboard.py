"""Admin route for the dashboard: a link with which a browser signs in, once."""

from openclaw_a2a.auth.dashboard_sessions import CODE_SECONDS, DashboardAuthenticator
from openclaw_a2a.model.errors import UnsupportedOperation
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest

LOGIN_PATH = "/dashboard/login"


class DashboardAdmin:
    """Makes sign-in links. `authenticator` is None while the dashboard is off."""

    def __init__(self, authenticator: DashboardAuthenticator | None) -> None:
        self._authenticator = authenticator

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the route."""
        endpoint.add_route("POST", "/operator/dashboard/link", self.make_link)

    async def make_link(self, _: AdminRequest) -> JsonObject:
        """A new link, as a path. Raises: UnsupportedOperation."""
        if self._authenticator is None:
            raise UnsupportedOperation(
                "the dashboard is off; set dashboard.enabled to true, and start the gateway again"
            )
        return {"path": login_path(self._authenticator), "expiresInSeconds": CODE_SECONDS}


def login_path(authenticator: DashboardAuthenticator) -> str:
    """The path of a new sign-in link."""
    return f"{LOGIN_PATH}?code={authenticator.new_code()}"
