"""Admin routes for deliveries in trouble: which wait for a retry, which were given up, and why."""

from openclaw_a2a.engine.outbox.delivery_view import DeliveryList, DeliveryReader, DeliveryView
from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest


class DeliveriesAdmin:
    """Serves the admin routes."""

    def __init__(self, reader: DeliveryReader) -> None:
        self._reader = reader

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/deliveries", self.list)
        endpoint.add_route("POST", "/operator/deliveries/{}/redeliver", self.redeliver)

    async def list(self, _: AdminRequest) -> DeliveryList:
        """All deliveries in trouble."""
        return await self._reader.list_in_trouble()

    async def redeliver(self, request: AdminRequest) -> DeliveryView:
        """Retry one now. Raises: DeliveryNotFound."""
        return await self._reader.redeliver(DeliveryId(request.segments[0]))
