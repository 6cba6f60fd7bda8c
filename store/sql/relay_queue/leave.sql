-- A relay leaves: what it held is free at once, and the others share without it.
with gone as (
  delete from relay_worker where owner = %(owner)s
)
update shard set lease_owner = null, lease_until = null
 where shard = any (array(select shard from shard where lease_owner = %(owner)s order by shard for no key update))
