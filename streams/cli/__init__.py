"""The console script `workflow-runs`: one file for each group of commands."""
