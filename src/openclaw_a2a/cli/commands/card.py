"""`card`: an agent card, for people or as it was sent."""

from dataclasses import replace

import msgspec

from openclaw_a2a.cli.connection import connect
from openclaw_a2a.cli.errors import DONE
from openclaw_a2a.cli.flags import NO_CONNECTION, Connection, JsonFlag
from openclaw_a2a.cli.render.terminal import print_data
from openclaw_a2a.model.card import AgentCard


def card(
    address: str | None = None,
    /,
    *,
    as_json: JsonFlag = False,
    connection: Connection = NO_CONNECTION,
) -> int:
    """Show an agent card.

    Parameters
    ----------
    address
        Address of the agent or of its card; left out: the gateway of the settings.
    """
    with connect(replace(connection, url=address) if address else connection) as client:
        if as_json:
            print_data(msgspec.json.format(client.card_bytes(), indent=2).decode())
        else:
            _show_card(client.card())
    return DONE


def _show_card(card: AgentCard) -> None:
    offers = {
        "streaming": card.capabilities.streaming,
        "push notifications": card.capabilities.push_notifications,
        "extended card": card.capabilities.extended_agent_card,
    }
    print_data(f"{card.name} {card.version}")
    print_data(card.description)
    print_data(
        f"\noffers   {', '.join(name for name, has in offers.items() if has) or 'no extras'}"
    )
    print_data(f"takes    {', '.join(card.default_input_modes)}")
    print_data(f"gives    {', '.join(card.default_output_modes)}")
    print_data(f"token    {'needed' if card.security_requirements else 'not needed'}")
    print_data("\ninterfaces")
    for interface in card.supported_interfaces:
        print_data(
            f"  {interface.protocol_binding:<10} {interface.protocol_version:<6} {interface.url}"
        )
    print_data("\nskills")
    for skill in card.skills:
        print_data(f"  {skill.id:<16} {skill.description}")
