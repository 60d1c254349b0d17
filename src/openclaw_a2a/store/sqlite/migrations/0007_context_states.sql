-- Tasks of a context are found by their state, too.

-- Without the state a list of the canceled tasks of a context looked at all tasks of it.
DROP INDEX task_by_context;
CREATE INDEX task_by_context ON task (principal, account, context, state, status_at, id)
WHERE state NOT IN (1, 2);
