-- The position that an operator is about to change: its reader waits, and then finds that it was changed.
select topic, partition, topic_id, next_offset, floor_offset
  from intake_position
 where group_id = %(group_id)s and topic = %(topic)s and partition = %(partition)s
   for update
