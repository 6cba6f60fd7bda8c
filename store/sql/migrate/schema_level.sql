-- The level a program must know to work on these tables.
select schema_level from workflow_runs.upkeep where only_row
