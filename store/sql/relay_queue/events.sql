-- The oldest unpublished events of each shard, and records that steps send, leaving out the jobs that the relay skips. One
-- statement and so one snapshot: ids of one job ascend with its seq and become visible in that order, so nothing is seen
-- before an earlier one. A record stands at the seq of its event; what of it is large is left to be asked for.
-- The index must give the order, else each look reads the whole shard. A table that was never analyzed would be taken to
-- have few events by a plain comparison of `kind`, cheap to sort; inside `coalesce` half of the rows are believed to match.
select queued.shard::integer as shard, queued.id, queued.job_id, queued.seq, event.event_id, event.type, event.step,
       event.attempt, event.verdict, event.error, event.detail, event.status, event.occurred_at, event.contract_version,
       event.format,
       run.tenant_id, run.workflow_name, run.business_key, input.labels, input.trace_context,
       queued.attempts, extract(epoch from queued.next_try_at - now())::double precision as wait_seconds,
       event.skip_reason, queued.kind, run.definition_hash,
       record.topic, record.type as value_type, record.key, record.value, record.headers, record.skip_reason as given_up
  from unnest(%(shards)s::smallint[], %(low)s::bigint[]) as wanted(shard, low)
  cross join lateral (
    select shard, id, kind, job_id, seq, attempts, next_try_at
      from relay_queue
     where relay_queue.shard = wanted.shard and id >= wanted.low
       and coalesce(kind in ('event', 'record'), false) and job_id <> all (%(skip)s::uuid[])
     order by shard, id limit %(limit)s) queued
  cross join lateral (select * from event where event.job_id = queued.job_id and event.seq = queued.seq offset 0) event
  cross join lateral (
    select tenant_id, workflow_name, business_key, definition_hash from run where run.job_id = queued.job_id offset 0) run
  left join lateral (select labels, trace_context from run_input where run_input.job_id = queued.job_id offset 0) input
    on true
  left join lateral (
    select topic, type, key, case when octet_length(value) <= 65536 then value end as value, headers, skip_reason
      from record
     where queued.kind = 'record' and record.job_id = queued.job_id and record.seq = queued.seq offset 0) record on true
 order by queued.shard, queued.id
