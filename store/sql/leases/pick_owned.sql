-- Locks what stands under this owner, but for the claims it holds, in job_id order.
select run.job_id
  from run
 where run.status = 'RUNNING' and run.lease_until > '-infinity' and run.lease_owner = %(owner)s
   and (run.job_id, run.fence) not in (
     select held.job_id, held.fence from json_to_recordset(%(claims)s::json) as held(job_id uuid, fence bigint))
 order by run.job_id
   for no key update of run
