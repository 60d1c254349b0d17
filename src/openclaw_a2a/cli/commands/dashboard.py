"""`dashboard`: open the pages of a gateway on this machine in a browser."""

from typing import Annotated

import msgspec
from cyclopts import App

from openclaw_a2a.cli.admin_client import connect_admin
from openclaw_a2a.cli.errors import DONE
from openclaw_a2a.cli.options import DEFAULT_ADMIN, AdminOptions, switch
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message
from openclaw_a2a.model.ids import JsonObject

app = App(name="dashboard", help="Open the dashboard in a browser.")


@app.command(name="open")
def open_dashboard(
    *,
    no_browser: Annotated[bool, switch("Only print the link.")] = False,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Open the dashboard, signed in. The link works once, within ten minutes, on this machine."""
    with connect_admin(options) as admin:
        answer = admin.post("dashboard", "link", body={})
        link = msgspec.json.decode(answer, type=JsonObject)
        url = f"{admin.address}{link['path']}"
    if options.as_json:
        print_json({"url": url, "expiresInSeconds": link["expiresInSeconds"]})
        return DONE
    print_data(url)
    if not no_browser:
        import webbrowser

        if not webbrowser.open(url):
            print_message("No browser was found; open the link yourself.")
    return DONE
