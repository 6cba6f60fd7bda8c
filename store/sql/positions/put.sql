-- Puts a position where an operator wants it, and writes down who did it and why. Answers nothing where there was no
-- position to lock and its reader has begun one meanwhile: then look again.
with put as (
  insert into intake_position (group_id, topic, partition, topic_id, next_offset, floor_offset)
  values (%(group_id)s, %(topic)s, %(partition)s, %(topic_id)s, %(next_offset)s, %(floor_offset)s)
  on conflict (group_id, topic, partition) do update
     set topic_id = excluded.topic_id, next_offset = excluded.next_offset, floor_offset = excluded.floor_offset,
         updated_at = greatest(now(), intake_position.updated_at + interval '1 microsecond')
   where %(is_locked)s::boolean
  returning group_id, topic, partition
)
insert into audit (tenant_id, actor, verb, reason, detail)
select 'default', %(actor)s, %(verb)s, %(reason)s, jsonb_build_object(
         'group', group_id, 'topic', topic, 'partition', partition,
         'from', %(from_offset)s::bigint, 'to', %(to_offset)s::bigint)
  from put
returning id
