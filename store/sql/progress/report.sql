-- How far the steps of held runs have come, for whoever looks: not announced, and written by the newest claim alone. What
-- somebody else has locked is left out, and told at the next report.
with asked as materialized (
  select m.*, coalesce(%(now)s::timestamptz, now()) as at
    from json_to_recordset(%(reports)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, done integer, total integer)
   order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update skip locked) locked
)
update run
   set items_done = held.done, items_total = held.total, updated_at = greatest(held.at, updated_at + interval '1 us')
  from held
 where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
returning run.job_id
