"""Push notifications: configurations, payloads and the webhook sender."""
