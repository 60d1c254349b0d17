-- Versions of records that several parts may want to change at once.

-- The records that are there have not been changed yet.
ALTER TABLE record ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
