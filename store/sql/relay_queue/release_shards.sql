-- Gives shards back, so that others take them at once.
update shard set lease_owner = null, lease_until = null
 where shard = any (array(
   select shard from shard
    where lease_owner = %(owner)s and shard = any (%(shards)s::smallint[])
    order by shard
      for no key update))
