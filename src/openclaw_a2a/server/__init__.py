"""The A2A server: endpoints of both protocol versions, cards, push notifications and health."""
