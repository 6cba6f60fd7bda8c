-- Failed tries that are made again later. Not announced; the row says why and when.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, seq bigint, attempt integer,
      step text, target text, delay_seconds double precision, error text)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
), queued as (
  update run
     set status = 'QUEUED', next_target = held.target, resume_target = null, seq = held.seq,
         attempt = held.attempt, attempt_step = held.step, run_after = held.at + held.delay_seconds * interval '1 s',
         lease_owner = null, lease_until = null, updated_at = greatest(held.at, updated_at + interval '1 us')
    from held
   where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
  returning held.*
)
insert into run_outcome (job_id, last_error, last_error_at) select job_id, error, at from queued
on conflict (job_id) do update set last_error = excluded.last_error, last_error_at = excluded.last_error_at
returning job_id
