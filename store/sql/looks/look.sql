-- What housekeeping needs to know, in one statement, since a worker with nothing to do asks nothing else: when the next lease
-- runs out (null while nothing runs), when something next happens to a run that nobody holds (null: never), whether any queued run is due, where the server's log stands (as history/place.sql
-- says it), and what is only counted now and then: a limit of 0 counts nothing.
with recursive target as (
  (select next_target from run where next_target is not null and lost_leases < 2 order by next_target limit 1)
  union all
  select (select run.next_target from run
           where run.next_target > target.next_target and run.lost_leases < 2
           order by run.next_target limit 1)
    from target
   where target.next_target is not null
)
select (select extract(epoch from run.lease_until - coalesce(%(now)s::timestamptz, now()))::double precision
          from run
         where run.status = 'RUNNING' and run.lease_until > '-infinity'
         order by run.lease_until
         limit 1) as expires_in,
       extract(epoch from least(
         (select run.due_at from run where run.due_at is not null order by run.due_at limit 1),
         (select run.deadline_at from run
           where run.deadline_at is not null and run.lease_until is null and run.completed_at is null
           order by run.deadline_at limit 1)) - coalesce(%(now)s::timestamptz, now()))::double precision as comes_due_in,
       coalesce(
         (select true
            from target
            cross join lateral (
              select from run
               where run.next_target = target.next_target and run.lost_leases < 2
                 and run.run_after <= coalesce(%(now)s::timestamptz, now())
               limit 1) due
           limit 1),
         (select true from run
           where run.status = 'QUEUED' and run.lost_leases >= 2
             and run.run_after <= coalesce(%(now)s::timestamptz, now())
           limit 1),
         false) as is_due,
       (select count(*)::integer
          from (select from run
                 where run.next_target is not null and run.lost_leases < 2
                   and run.run_after <= coalesce(%(now)s::timestamptz, now())
                 limit %(most_runs)s) counted) as queued,
       (select count(*)::integer
          from (select from dead_letter where state = 'HELD' limit %(most_letters)s) held) as held_letters,
       (select count(*)::integer
          from (select from dead_letter where state = 'READY' limit %(most_letters)s) ready) as ready_letters,
       current_setting('transaction_read_only')::boolean as read_only,
       case when not pg_is_in_recovery() then
         ('x' || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8))::bit(32)::bigint end as timeline,
       case when not pg_is_in_recovery() then (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint end as position
