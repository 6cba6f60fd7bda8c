-- Gives up what is blocked at a seq of a run: an event is told in its reduced form from now on, at once; a record that a step
-- sends, which goes out before the event of the same seq, is not published at all. Only of a blocked row, which no relay has
-- on its way: one id must never stand for two contents. Answers what the row was; whoever wanted it, and why, is written down.
with found as materialized (
  select shard, tenant_id from run where job_id = %(job_id)s::uuid
), asked as materialized (
  select shard, id, seq, kind, attempts, last_error
    from relay_queue
   where shard = (select shard from found) and kind in ('event', 'record') and job_id = %(job_id)s::uuid and seq = %(seq)s::bigint
   order by shard, id limit 1
     for update
), blocked as materialized (
  select * from asked where attempts >= %(blocked_at)s
), reduced as (
  update event set skip_reason = %(reason)s
   where job_id = %(job_id)s::uuid and seq = (select seq from blocked where kind = 'event')
), dropped as (
  update record set skip_reason = %(reason)s
   where job_id = %(job_id)s::uuid and seq = (select seq from blocked where kind = 'record')
), tried as (
  update relay_queue set attempts = 0, next_try_at = null
    from blocked
   where relay_queue.shard = blocked.shard and relay_queue.id = blocked.id
), audited as (
  insert into audit (tenant_id, actor, verb, job_id, reason, detail)
  select (select tenant_id from found), %(actor)s, 'relay skip', %(job_id)s::uuid, %(reason)s,
         jsonb_build_object('seq', seq, 'kind', kind, 'attempts', attempts, 'lastError', last_error)
    from blocked
)
select attempts, attempts >= %(blocked_at)s as skipped from asked
