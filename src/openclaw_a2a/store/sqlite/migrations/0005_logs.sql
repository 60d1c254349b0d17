-- Logs: append-only lines, replayed to rebuild state.

-- Lines refer to the number of their log, so that the lines of a log are stored together.
CREATE TABLE log (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  is_closed INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (kind, id)
) STRICT;

-- Closed logs accumulate; the open ones are found without reading them.
CREATE INDEX log_at_work ON log (kind, id) WHERE is_closed = 0;

CREATE TABLE log_line (
  log INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (log, sequence)
) STRICT, WITHOUT ROWID;
