-- What is there already. Asked first, since `if not exists` demands the right to create even where nothing is created.
select current_setting('server_version_num')::integer as server_version,
       to_regnamespace('workflow_runs') is not null as has_schema,
       to_regclass('workflow_runs.migration') is not null as has_history
