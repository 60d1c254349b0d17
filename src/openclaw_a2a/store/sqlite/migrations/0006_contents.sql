-- Contents: large strings of events, stored once per task.

-- The hash is the SHA-256 of the body. Rows of `event` and `snapshot` refer to it when their body
-- begins with a zero byte; rows that were written earlier have none, and stay as they are.
CREATE TABLE content (
  number INTEGER PRIMARY KEY,
  task INTEGER NOT NULL,
  hash BLOB NOT NULL,
  body BLOB NOT NULL,
  UNIQUE (task, hash)
) STRICT;
