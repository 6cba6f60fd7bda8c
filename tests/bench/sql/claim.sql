-- Takes due runs, bare: one target, no marks, no advisory lock.
with taken as materialized (
  select job_id from run
   where next_target = %(target)s and lost_leases < 2 and run_after <= now()
   order by run_after, job_id
   limit %(most)s
     for no key update skip locked
)
update run
   set status = 'RUNNING', fence = fence + 1, next_target = null, resume_target = %(target)s, lease_owner = %(owner)s,
       lease_until = now() + interval '5 minutes', started_at = now(), updated_at = now()
  from taken
 where run.job_id = taken.job_id and run.job_id = any (array(select job_id from taken))
returning run.job_id::text, (select input::text from run_input where run_input.job_id = run.job_id)
