-- Lets the next rows that failed be tried at once, whatever they are, and writes down who wanted it and why.
with asked as materialized (
  select shard, id
    from relay_queue
   where attempts > 0 and (shard, id) > (%(after_shard)s::smallint, %(after_id)s::bigint)
   order by shard, id
   limit %(limit)s
     for update
), tried as (
  update relay_queue set attempts = 0, next_try_at = null
    from asked
   where relay_queue.shard = asked.shard and relay_queue.id = asked.id
), audited as (
  insert into audit (tenant_id, actor, verb, reason, detail)
  select 'default', %(actor)s, 'relay resend', %(reason)s, jsonb_build_object('all', true, 'rows', count(*))
    from asked
  having count(*) > 0
)
select shard::integer as shard, id from asked order by shard, id
