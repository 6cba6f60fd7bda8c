-- Gives a blocked dead letter up: from now on it is published in its reduced form, at once. The store keeps all of it.
with asked as materialized (
  select shard, id, attempts, last_error
    from relay_queue
   where shard = any (array(select shard from shard)) and attempts > 0 and letter_id = %(letter_id)s::bigint
     for update
), blocked as materialized (
  select * from asked where attempts >= %(blocked_at)s
), reduced as (
  update dead_letter set skip_reason = %(reason)s
   where letter_id = %(letter_id)s::bigint and (select 1 from blocked limit 1) is not null
), tried as (
  update relay_queue set attempts = 0, next_try_at = null
    from blocked
   where relay_queue.shard = blocked.shard and relay_queue.id = blocked.id
), audited as (
  insert into audit (tenant_id, actor, verb, reason, detail)
  select 'default', %(actor)s, 'relay skip', %(reason)s,
         jsonb_build_object('letterId', %(letter_id)s::bigint, 'attempts', attempts, 'lastError', last_error)
    from blocked
)
select attempts, attempts >= %(blocked_at)s as skipped from asked
