-- Moves positions from the values that their reader knows, and begins those it found none of. Answers what was moved;
-- positions/read.sql tells about the others. Locks go in one order, so that two readers never wait for each other.
with asked as materialized (
  select * from json_to_recordset(%(moves)s::json) as move(
    topic text, partition integer, topic_id text, expected bigint, next_offset bigint,
    expected_floor bigint, floor_offset bigint)
  order by topic, partition
), held as materialized (
  select asked.*
    from asked
    cross join lateral (
      select from intake_position position
       where position.group_id = %(group_id)s and position.topic = asked.topic and position.partition = asked.partition
         and position.next_offset = asked.expected and position.floor_offset = asked.expected_floor
         for no key update) locked
), moved as (
  update intake_position position
     set topic_id = held.topic_id, next_offset = held.next_offset, floor_offset = held.floor_offset,
         updated_at = greatest(coalesce(%(now)s::timestamptz, now()), position.updated_at + interval '1 microsecond')
    from held
   where position.group_id = %(group_id)s and position.topic = held.topic and position.partition = held.partition
  returning position.topic, position.partition
), begun as (
  insert into intake_position (group_id, topic, partition, topic_id, next_offset, updated_at)
  select %(group_id)s, topic, partition, topic_id, next_offset, coalesce(%(now)s::timestamptz, now())
    from asked
   where expected is null
  on conflict do nothing
  returning topic, partition
)
select topic, partition from moved union all select topic, partition from begun
