-- Runs that end: COMPLETED, FAILED or DEAD, with outcome, event and relay row. `failed_tries` is set where a step's try
-- failed, which then counts.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, seq bigint, event_id uuid, attempt integer,
      status text, type smallint, step text, failed_tries integer, verdict text, result jsonb, error text,
      event_error text, detail text)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
), settled as (
  update run
     set status = held.status, seq = held.seq, resume_target = null,
         attempt = coalesce(held.failed_tries, run.attempt),
         attempt_step = case when held.failed_tries is null then run.attempt_step else held.step end,
         lease_owner = null, lease_until = null, completed_at = held.at,
         updated_at = greatest(held.at, updated_at + interval '1 us')
    from held
   where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
  returning held.*, run.shard
), ended as (
  insert into run_outcome (job_id, verdict, result, error) select job_id, verdict, result, error from settled
  on conflict (job_id) do update
     set verdict = excluded.verdict, result = excluded.result, error = excluded.error, composed_request = null
), announced as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, verdict, error, detail)
  select job_id, seq, event_id, at, attempt, type, status, step, verdict, event_error, detail from settled
)
insert into relay_queue (shard, seq, job_id) select shard, seq, job_id from settled returning job_id
