-- Lets a dead letter that failed be tried at once, as if it never had, and writes down who wanted it and why.
with asked as materialized (
  select shard, id
    from relay_queue
   where shard = any (array(select shard from shard)) and attempts > 0 and letter_id = %(letter_id)s::bigint
     for update
), tried as (
  update relay_queue set attempts = 0, next_try_at = null
    from asked
   where relay_queue.shard = asked.shard and relay_queue.id = asked.id
  returning relay_queue.letter_id
), audited as (
  insert into audit (tenant_id, actor, verb, reason, detail)
  select 'default', %(actor)s, 'relay resend', %(reason)s, jsonb_build_object('letterId', letter_id) from tried
)
select letter_id from tried
