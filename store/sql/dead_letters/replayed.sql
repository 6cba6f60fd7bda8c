-- Marks letters as put back on their topic, and writes down who did it and why.
with marked as (
  update dead_letter set replayed_at = coalesce(%(now)s::timestamptz, now())
   where letter_id = any (%(letter_ids)s::bigint[])
  returning letter_id
)
insert into audit (tenant_id, actor, verb, reason, detail)
select 'default', %(actor)s, 'dead-letters replay', %(reason)s, jsonb_build_object('letterIds', jsonb_agg(letter_id order by letter_id))
  from marked
having count(*) > 0
