-- Runs that end: the row, the outcome, event and relay row.
with asked as materialized (
  select * from json_to_recordset(%(moves)s::json) as move(job_id uuid, seq bigint, event_id uuid, response jsonb)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.lease_owner = %(owner)s and run.status = 'RUNNING'
         for no key update) locked
), settled as (
  update run
     set status = 'COMPLETED', seq = held.seq, resume_target = null, lease_owner = null, lease_until = null,
         completed_at = now(), updated_at = now()
    from held
   where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
  returning held.*, run.shard
), ended as (
  insert into run_outcome (job_id, verdict, result) select job_id, 'completed', response from settled
), announced as (
  insert into event (job_id, seq, event_id, attempt, type, status, verdict)
  select job_id, seq, event_id, 1, 4, 'COMPLETED', 'completed' from settled
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from settled
