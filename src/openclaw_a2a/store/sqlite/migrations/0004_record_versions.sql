-- Versions of records, for optimistic locking.

-- Existing records have not been updated yet.
ALTER TABLE record ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
