-- Tasks, their events and snapshots, live runs, idempotency records and counters.

-- The migrations that were applied, and the version of the program that applied them.
CREATE TABLE schema_version (
  version INTEGER PRIMARY KEY,
  made_by TEXT NOT NULL,
  checked INTEGER NOT NULL DEFAULT 0
) STRICT;

-- A task without its content. Times are microseconds since 1970, UTC.
-- Other tables refer to the number, not the id: new tasks share pages there, random ids would not.
CREATE TABLE task (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  account TEXT NOT NULL,
  context TEXT NOT NULL,
  state INTEGER NOT NULL,
  status_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  binding BLOB,
  resume BLOB
) STRICT;

-- Lists filter by state too, so one index serves both; a list of all states merges a few ranges.
CREATE INDEX task_by_status ON task (principal, account, state, status_at, id);
-- Contexts are random, so every entry costs a page: tasks are added when they pause or end. The
-- active ones (1 submitted, 2 working) are few and found by their status.
CREATE INDEX task_by_context ON task (principal, account, context, status_at, id)
WHERE state NOT IN (1, 2);

-- The newest snapshot of a task; the events after it complete it.
CREATE TABLE snapshot (
  task INTEGER PRIMARY KEY,
  sequence INTEGER NOT NULL,
  body BLOB NOT NULL
) STRICT;

CREATE TABLE event (
  task INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  state INTEGER,
  body BLOB NOT NULL,
  PRIMARY KEY (task, sequence)
) STRICT, WITHOUT ROWID;

-- Runs that are queued or active; the ticket is their order of arrival. They are few and cached by
-- the writer, which finds them by ticket: their id needs no index.
CREATE TABLE run (
  ticket INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  task TEXT NOT NULL,
  context TEXT NOT NULL,
  principal TEXT NOT NULL,
  account TEXT NOT NULL,
  session_key TEXT NOT NULL,
  message_id TEXT NOT NULL,
  owner TEXT NOT NULL,
  fence INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  is_started INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  input BLOB NOT NULL,
  resume BLOB
) STRICT;

-- The messages that were accepted, and their outcomes.
CREATE TABLE message (
  number INTEGER PRIMARY KEY,
  principal TEXT NOT NULL,
  account TEXT NOT NULL,
  message_id TEXT NOT NULL,
  body_hash BLOB NOT NULL,
  run TEXT NOT NULL,
  task TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  answer BLOB,
  UNIQUE (principal, account, message_id)
) STRICT;

CREATE INDEX message_by_age ON message (created_at);

-- How many tasks a caller has in each state.
CREATE TABLE tally (
  principal TEXT NOT NULL,
  account TEXT NOT NULL,
  state INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (principal, account, state)
) STRICT, WITHOUT ROWID;
