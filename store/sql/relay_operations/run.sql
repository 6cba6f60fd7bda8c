-- Whether there is such a run, and what it says of itself: its error is whole here, where its event has it cut.
select run.job_id, run.tenant_id, run.workflow_name, run.status, run.shard::integer as shard, run_outcome.error
  from run
  left join run_outcome on run_outcome.job_id = run.job_id
 where run.job_id = %(job_id)s::uuid
