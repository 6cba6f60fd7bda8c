-- What `publish` and `ask` steps send, ahead of the checkpoint or park of the same transaction and with the same guard: kept,
-- and queued before the event that tells of it.
with asked as materialized (
  select *
    from json_to_recordset(%(moves)s::json) as m(
      job_id uuid, fence bigint, lease_owner text, seq bigint, step_index integer, topic text, type text, key text,
      value text, headers jsonb)
   order by job_id
), held as materialized (
  select asked.*, locked.*
    from asked
    cross join lateral (
      select run.shard
        from run
       where run.job_id = asked.job_id and run.fence = asked.fence and run.lease_owner = asked.lease_owner
         and run.status = 'RUNNING'
         for no key update) locked
), kept as (
  insert into record (job_id, seq, step_index, topic, type, key, value, headers)
  select job_id, seq, step_index, topic, type, decode(key, 'base64'), decode(value, 'base64'), headers from held
)
insert into relay_queue (shard, seq, job_id, kind) select shard, seq, job_id, 'record' from held
