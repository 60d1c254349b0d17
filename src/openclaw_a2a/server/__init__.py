"""The A2A server: doors for both protocol generations, cards, streams and health."""
