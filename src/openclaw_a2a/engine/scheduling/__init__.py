"""Which run may start when: session queues and fair queues."""
