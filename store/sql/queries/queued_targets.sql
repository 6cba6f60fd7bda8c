-- What most of the due runs wait for. Bounded: the targets that are looked at, and how far each of them is counted.
with recursive target as (
  (select next_target, 1 as place from run where next_target is not null and lost_leases < 2 order by next_target limit 1)
  union all
  select (select run.next_target from run
           where run.next_target > target.next_target and run.lost_leases < 2
           order by run.next_target limit 1), target.place + 1
    from target
   where target.next_target is not null and target.place < %(targets)s
)
select target.next_target as target, counted.queued
  from target
  cross join lateral (
    select count(*)::integer as queued
      from (
        select from run
         where run.next_target = target.next_target and run.lost_leases < 2
           and run.run_after <= coalesce(%(now)s::timestamptz, now())
         limit %(limit)s) due) counted
 where target.next_target is not null and counted.queued > 0
 order by counted.queued desc, target.next_target
 limit 5
