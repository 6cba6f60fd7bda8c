-- Takes the transaction of a handler over for the checkpoint: still the same one, with our tables before the handler's and
-- our own limit on statements.
select txid_current()::text as xid, set_config('search_path', 'workflow_runs', true),
       set_config('statement_timeout', %(milliseconds)s::text, true)
