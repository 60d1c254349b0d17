-- Requests of callers that count against their rate limits, over all gateways on this database.

-- Not logged: it is about the last minute. After a crash of the server everybody begins anew.
-- What was used flows off with the time, at the rate of the limit.
CREATE UNLOGGED TABLE request_rate (
  peer text COLLATE "C" PRIMARY KEY,
  second_used double precision NOT NULL,
  minute_used double precision NOT NULL,
  at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The clock of the rates. Not now(): who has waited for a lock looks at the time after it.
CREATE FUNCTION rate_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS 'SELECT clock_timestamp()';
