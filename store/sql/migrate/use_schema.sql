-- Migrations name no schema. For this transaction only: behind a transaction pooler a session's setting would stay behind.
select set_config('search_path', 'workflow_runs', true)
