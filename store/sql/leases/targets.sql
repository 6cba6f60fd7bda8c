-- What due runs wait for: one index look-up per target, however many runs wait. Suspects count too.
with recursive target as (
  (select next_target from run where next_target is not null and lost_leases < 2 order by next_target limit 1)
  union all
  select (select run.next_target from run
           where run.next_target > target.next_target and run.lost_leases < 2
           order by run.next_target limit 1)
    from target
   where target.next_target is not null
)
select target.next_target as target
  from target
 where target.next_target is not null
   and (select 1 from run
         where run.next_target = target.next_target and run.lost_leases < 2
           and run.run_after <= coalesce(%(now)s::timestamptz, now())
         limit 1) is not null
union
select suspect.next_target
  from (select run.next_target from run
         where run.status = 'QUEUED' and run.lost_leases >= 2
           and run.run_after <= coalesce(%(now)s::timestamptz, now())
         order by run.run_after limit 100) suspect
