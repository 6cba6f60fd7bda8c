-- Everything of ours lives in one schema, so that it can share a database.
create schema workflow_runs
