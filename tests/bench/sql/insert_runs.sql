-- The rows of new runs, bare: nobody looks whether an id is known, before or after.
with asked as materialized (
  select job_id, event_id, decode(definition_hash, 'hex') as definition_hash, decode(fingerprint, 'hex') as fingerprint,
         workflow_name, business_key, target, input, now() + ordinal * interval '1 microsecond' as at,
         mod(get_byte(uuid_send(job_id), 15), 16)::smallint as shard
    from json_to_recordset(%(rows)s::json) as row(
           job_id uuid, event_id uuid, ordinal integer, definition_hash text, fingerprint text, workflow_name text,
           business_key text, target text, input jsonb)
), new_run as (
  insert into run (job_id, run_after, updated_at, status, next_target, shard, engine_level, max_attempts, steps_total,
                   definition_hash, created_at, fingerprint, tenant_id, workflow_name, business_key)
  select job_id, at, at, 'QUEUED', target, shard, 1, 3, 3, definition_hash, at, fingerprint, 'default', workflow_name,
         business_key
    from asked
), new_input as (
  insert into run_input (job_id, input, record_time) select job_id, input, at from asked
), new_event as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status)
  select job_id, 1, event_id, at, 0, 1, 'QUEUED' from asked
)
insert into relay_queue (shard, job_id, seq) select shard, job_id, 1 from asked
