-- Hands back what pick_owned.sql locked, in the same transaction: queued for the target it was taken for. The log's
-- last seq is read now that the rows are ours, since a checkpoint leaves none in the row.
update run
   set status = 'QUEUED', next_target = resume_target, resume_target = null, lease_owner = null, lease_until = null,
       seq = (select max(event.seq) from event where event.job_id = run.job_id),
       updated_at = greatest(coalesce(%(now)s::timestamptz, now()), updated_at + interval '1 us')
 where run.job_id = any (%(job_ids)s::uuid[]) and run.status = 'RUNNING' and run.lease_owner = %(owner)s
returning run.job_id
