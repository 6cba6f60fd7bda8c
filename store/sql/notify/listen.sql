-- Wake-ups of every process that works on this database come on one channel; the payload says what there is to do.
listen workflow_runs
