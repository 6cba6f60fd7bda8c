-- Takes back runs that this transaction inserted: their ids turned out to be those of pruned runs.
with asked as materialized (
  select * from json_to_recordset(%(rows)s::json) as row(job_id uuid, shard smallint, id bigint)
), no_run as (
  delete from run using asked where run.job_id = asked.job_id
), no_input as (
  delete from run_input using asked where run_input.job_id = asked.job_id
), no_outcome as (
  delete from run_outcome using asked where run_outcome.job_id = asked.job_id
), no_event as (
  delete from event using asked where event.job_id = asked.job_id and event.seq = 1
)
delete from relay_queue using asked where relay_queue.shard = asked.shard and relay_queue.id = asked.id
