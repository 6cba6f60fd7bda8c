-- One migrator at a time, until the end of the transaction.
select pg_advisory_xact_lock(hashtextextended('workflow_runs migrate', 0))
