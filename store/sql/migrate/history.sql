-- The migrations applied so far.
select version, name, checksum from workflow_runs.migration order by version
