-- What queued runs wait for, and in how many seconds the first run of each target is due: one index look-up per target,
-- however many runs wait. Suspects count too.
with recursive target as (
  (select next_target from run where next_target is not null and lost_leases < 2 order by next_target limit 1)
  union all
  select (select run.next_target from run
           where run.next_target > target.next_target and run.lost_leases < 2
           order by run.next_target limit 1)
    from target
   where target.next_target is not null
), first as (
  select target.next_target as target, earliest.run_after
    from target
    cross join lateral (
      select run.run_after from run
       where run.next_target = target.next_target and run.lost_leases < 2
       order by run.run_after
       limit 1) earliest
  union all
  (select run.next_target, run.run_after from run
    where run.status = 'QUEUED' and run.lost_leases >= 2
    order by run.run_after limit 100)
)
select target, extract(epoch from min(run_after) - coalesce(%(now)s::timestamptz, now()))::double precision as due_in
  from first
 group by target
