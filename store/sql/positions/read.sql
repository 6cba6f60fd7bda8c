-- How far a group has read these topics.
select topic, partition, topic_id, next_offset, floor_offset
  from intake_position
 where group_id = %(group_id)s and topic = any (%(topics)s)
 order by topic, partition
