-- Locks runs whose events are sent again: new events of theirs then come behind, and pruning leaves them alone. What the next
-- statement reads is newer than the lock.
select run.job_id, run.shard::integer as shard
  from run
 where run.job_id = any (%(job_ids)s::uuid[])
 order by run.job_id
   for no key update
