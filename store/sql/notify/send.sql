-- Wakes the other processes. Never part of a move's transaction: NOTIFY takes a lock of the whole database at commit.
select pg_notify('workflow_runs', payload) from unnest(%(payloads)s::text[]) payload
