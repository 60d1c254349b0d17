-- The gateway that works on what a log describes, such as the plans of an objective.

-- One without an owner (written by an earlier version, or moved here) goes to the next gateway that
-- takes over.
ALTER TABLE log ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '';
