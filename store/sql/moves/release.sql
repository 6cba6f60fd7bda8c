-- Runs handed back unharmed: no failed try, no lost lease. Due at once they keep their place among those that wait.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, seq bigint, target text, delay_seconds double precision)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
)
update run
   set status = 'QUEUED', next_target = held.target, resume_target = null, seq = held.seq,
       run_after = case when held.delay_seconds > 0 then held.at + held.delay_seconds * interval '1 s'
                        else run_after end,
       lease_owner = null, lease_until = null, updated_at = greatest(held.at, updated_at + interval '1 us')
  from held
 where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
returning run.job_id
