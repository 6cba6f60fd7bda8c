-- Finished steps: checkpoint, event and relay row. The run is locked, so that only the newest claim gets through, but
-- not written, unless something is to be forgotten: leases lost before this progress, failed tries of the step.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, seq bigint, event_id uuid, attempt integer,
      step_index integer, step text, skipped boolean, response jsonb, detail text)
   order by job_id
), held as materialized (
  select asked.*, locked.*
    from asked
    cross join lateral (
      select run.shard, run.lost_leases > 0 or run.attempt > 0 as has_past
        from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
), forgotten as (
  update run
     set lost_leases = 0, attempt = 0, attempt_step = null, updated_at = greatest(held.at, updated_at + interval '1 us')
    from held
   where run.job_id = held.job_id and run.job_id = any (array(select job_id from held where has_past))
), kept as (
  insert into checkpoint (job_id, step_index, fence, attempt, skipped, created_at, step, response)
  select job_id, step_index, fence, attempt, skipped, at, step,
         case when not skipped then coalesce(response, 'null') end
    from held
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, detail)
  select job_id, seq, event_id, at, attempt, 2, 'RUNNING', step, detail from held
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from held returning job_id
