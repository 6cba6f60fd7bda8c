-- One look of a relay at the shards: it says that it is there, renews what it holds, also what ran out and nobody took,
-- and takes what is free or ran out while it has less than its share. Shards that another relay is just taking are left
-- to that one. Names of relays that went without a word are kept a while, since to delete one that comes back would wait
-- for it while it waits for us. Answers what it holds, its share, whether something waits there from the low-water marks on,
-- and when the next foreign lease ends.
with clock as materialized (
  select coalesce(%(now)s::timestamptz, now()) as now,
         coalesce(%(now)s::timestamptz, now()) + %(lease_seconds)s * interval '1 second' as lease_until
), present as (
  insert into relay_worker (owner, live_until) select %(owner)s, lease_until from clock
  on conflict (owner) do update set live_until = excluded.live_until
), absent as (
  delete from relay_worker
   where owner = any (array(
     select owner from relay_worker
      where live_until <= (select now from clock) - interval '1 hour' and owner <> %(owner)s
        for update skip locked))
), wanted as materialized (
  select ceil((select count(*) from shard)
              / (1.0 + (select count(*) from relay_worker
                         where live_until > (select now from clock) and owner <> %(owner)s)))::integer as share
), mine as materialized (
  select shard from shard where lease_owner = %(owner)s order by shard for no key update
), taken as materialized (
  select shard from shard
   where lease_owner is null or (lease_owner <> %(owner)s and lease_until <= (select now from clock))
   order by shard
   limit greatest(0, (select share from wanted) - (select count(*) from mine))
     for no key update skip locked
), held as materialized (
  update shard set lease_owner = %(owner)s, lease_until = (select lease_until from clock)
   where shard = any (array(select shard from mine union all select shard from taken))
  returning shard
)
select array(select shard::integer from held order by shard) as held,
       (select share from wanted) as share,
       (select 1 from held
         left join lateral (
           select low from unnest(%(low_shards)s::smallint[], %(low)s::bigint[]) as mark(shard, low)
            where mark.shard = held.shard) mark on true
         cross join lateral (
           select from relay_queue
            where relay_queue.shard = held.shard and id >= coalesce(mark.low, 0)
            order by shard, id limit 1) queued
         limit 1) is not null as pending,
       (select extract(epoch from min(lease_until) - (select now from clock))::double precision
          from shard
         where lease_owner <> %(owner)s and lease_until > (select now from clock)) as next_end_seconds
