-- New runs with their input, first event and place in the relay's queue, all or none. With an error a run is born
-- FAILED, so that whoever asked finds the reason under the id. Answers the runs that are new; submit/known.sql tells
-- about the others, in a statement of its own. Accepted and refused go together, so that two batches lock the ids they
-- share in one order; a race lost to another submit raises 23505, and the transaction is run again. The scalar look-up
-- is never planned as a hashed read of all runs, as `exists` can be.
with asked as materialized (
  select job_id, at, event_id, decode(definition_hash, 'hex') as definition_hash, decode(fingerprint, 'hex') as fingerprint,
         tenant_id, workflow_name, business_key, target, engine_level, max_attempts, steps_total,
         input::jsonb as input, labels, trace_context, record_time, error, event_error, event_detail, failed_step,
         at + run_deadline_ms * interval '1 ms' as deadline_at,
         error is not null as is_refused,
         case when error is null then 'QUEUED' else 'FAILED' end as status,
         mod(get_byte(uuid_send(job_id), 15), (select shards from upkeep where only_row))::smallint as shard
    from json_to_recordset(%(rows)s::json) as row(
           job_id uuid, ordinal integer, event_id uuid, definition_hash text, fingerprint text, tenant_id text,
           workflow_name text, business_key text, target text, engine_level smallint, max_attempts integer,
           steps_total integer, input text, labels jsonb, trace_context text, record_time timestamptz,
           error text, event_error text, event_detail text, failed_step text, run_deadline_ms bigint)
    cross join lateral (select coalesce(%(now)s::timestamptz, now()) + ordinal * interval '1 microsecond' as at) clock
   where (select 1 from run where run.job_id = row.job_id limit 1) is null
   order by job_id
), new_run as (
  insert into run (job_id, run_after, updated_at, completed_at, status, next_target, shard, engine_level, max_attempts,
                   steps_total, definition_hash, created_at, deadline_at, fingerprint, tenant_id, workflow_name, business_key)
  select job_id, at, at, case when is_refused then at end, status, case when not is_refused then target end,
         shard, engine_level, max_attempts,
         steps_total, definition_hash, at, deadline_at, fingerprint, tenant_id, workflow_name, business_key
    from asked
), new_input as (
  insert into run_input (job_id, input, labels, trace_context, record_time)
  select job_id, input, labels, trace_context, record_time from asked
), new_outcome as (
  insert into run_outcome (job_id, error) select job_id, error from asked where is_refused
), new_event as (
  insert into event (job_id, seq, event_id, occurred_at, attempt, type, status, step, error, detail)
  select job_id, 1, event_id, at, 0, case when is_refused then 5 else 1 end, status, failed_step, event_error, event_detail
    from asked
)
insert into relay_queue (shard, job_id, seq) select shard, job_id, 1 from asked
returning job_id, shard, id
