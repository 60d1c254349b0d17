-- Deliveries: the subscribers of a task, and how far each was notified.

-- The state is 0 idle, 1 waiting, 2 dead. A task has few of them, most have none.
CREATE TABLE delivery (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  task TEXT NOT NULL,
  body BLOB NOT NULL,
  cursor INTEGER NOT NULL,
  state INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  next_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  reason TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX delivery_by_task ON delivery (task);
-- For the list of failed deliveries.
CREATE INDEX delivery_in_trouble ON delivery (state, id) WHERE state <> 0;
