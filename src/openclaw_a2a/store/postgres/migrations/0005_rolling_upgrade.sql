-- Which gateways may go on after a migration: those that know at least this schema.

ALTER TABLE schema_version ADD COLUMN compatible_from integer;
