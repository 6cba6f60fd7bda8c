-- Longer leases for the claims a worker really holds. Those missing from the answer are no longer its own.
with asked as materialized (
  select * from json_to_recordset(%(claims)s::json) as m(job_id uuid, fence bigint) order by job_id
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = %(owner)s
         and run.status = 'RUNNING'
         for no key update) locked
)
update run
   set lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s::interval
  from held
 where run.job_id = held.job_id and run.job_id = any (array(select job_id from held))
returning run.job_id, run.fence
