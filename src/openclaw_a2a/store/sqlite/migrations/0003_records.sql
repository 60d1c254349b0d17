-- Records: small values with an expiry.

-- A record that is put again gets a new number: the numbers keep the order of puts.
CREATE TABLE record (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  body BLOB NOT NULL,
  expires_at INTEGER NOT NULL,
  UNIQUE (kind, id)
) STRICT;

CREATE INDEX record_by_end ON record (expires_at);
