-- Second phase: the runs that lock.sql locked go with everything of theirs, but none that the relay has not wholly published.
-- A statement of its own, so that it sees what was queued before the lock. The queue is read once, whatever it holds.
with unpublished as materialized (
  select job_id from relay_queue
   where shard = any (%(shards)s::smallint[]) and job_id = any (%(job_ids)s::uuid[])
), gone as materialized (
  select job_id from unnest(%(job_ids)s::uuid[]) as asked(job_id)
   where job_id <> all (array(select job_id from unpublished))
), no_input as (
  delete from run_input where job_id = any (array(select job_id from gone))
), no_outcome as (
  delete from run_outcome where job_id = any (array(select job_id from gone))
), no_checkpoint as (
  delete from checkpoint where job_id = any (array(select job_id from gone))
), no_item as (
  delete from item where job_id = any (array(select job_id from gone))
), no_event as (
  delete from event where job_id = any (array(select job_id from gone))
), no_record as (
  delete from record where job_id = any (array(select job_id from gone))
)
delete from run where job_id = any (array(select job_id from gone)) returning job_id
