-- Finished steps: the row lock that is the fence, then checkpoint, event and relay row.
with asked as materialized (
  select * from json_to_recordset(%(moves)s::json) as move(
    job_id uuid, seq bigint, event_id uuid, step_index integer, step text, response jsonb)
   order by job_id
), held as materialized (
  select asked.*, locked.shard
    from asked
    cross join lateral (
      select run.shard from run
       where run.job_id = asked.job_id and run.lease_owner = %(owner)s and run.status = 'RUNNING'
         for no key update) locked
), kept as (
  insert into checkpoint (job_id, step_index, fence, attempt, skipped, step, response)
  select job_id, step_index, 1, 1, false, step, response from held
), announced as (
  insert into event (job_id, seq, event_id, attempt, type, status, step)
  select job_id, seq, event_id, 1, 2, 'RUNNING', step from held
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from held
