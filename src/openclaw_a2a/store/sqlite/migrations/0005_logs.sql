-- Logs: lines that are only ever added, for parts of the gateway that replay what happened.

-- The number stands for kind and id in the lines, so that a log's lines lie side by side.
CREATE TABLE log (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  is_closed INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (kind, id)
) STRICT;

-- Closed logs pile up over the years; those at work are found without them.
CREATE INDEX log_at_work ON log (kind, id) WHERE is_closed = 0;

CREATE TABLE log_line (
  log INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (log, sequence)
) STRICT, WITHOUT ROWID;
