-- Lets rows of one run that failed be tried at once, as if they never had, and writes down who wanted it and why.
with found as materialized (
  select shard, tenant_id from run where job_id = %(job_id)s::uuid
), asked as materialized (
  select shard, id
    from relay_queue
   where shard = (select shard from found) and attempts > 0 and kind in ('event', 'record') and job_id = %(job_id)s::uuid
     and (%(seq)s::bigint is null or seq = %(seq)s::bigint)
   order by shard, id
     for update
), tried as (
  update relay_queue set attempts = 0, next_try_at = null
    from asked
   where relay_queue.shard = asked.shard and relay_queue.id = asked.id
  returning relay_queue.seq
), audited as (
  insert into audit (tenant_id, actor, verb, job_id, reason, detail)
  select (select tenant_id from found), %(actor)s, 'relay resend', %(job_id)s::uuid, %(reason)s,
         jsonb_build_object('seqs', jsonb_agg(seq order by seq))
    from tried
  having count(*) > 0
)
select seq from tried order by seq
