"""How long to wait before the next try of a delivery."""

import msgspec


class OutboxRules(msgspec.Struct, frozen=True):
    """Bounds of one outbox. Without `attempt_s` couriers see to it that their tries end."""

    attempts: int = 12
    backoff_s: float = 1.0
    most_backoff_s: float = 3600.0
    attempt_s: float | None = 30.0
    parallel: int = 32


def pause_s(
    attempts: int, rules: OutboxRules, *, roll: float, retry_after_s: float | None = None
) -> float:
    """The pause after so many failed tries.

    It doubles with each try up to its most, and `roll` (0 to 1) takes away up to half of it, so
    that receivers which failed together are not tried together. A receiver that says when to
    come again is not tried before, as long as that is within the most.
    """
    doubled = rules.backoff_s * 2.0 ** min(attempts - 1, 60)
    pause = min(doubled, rules.most_backoff_s) * (1.0 - roll / 2.0)
    return max(pause, min(retry_after_s or 0.0, rules.most_backoff_s))
