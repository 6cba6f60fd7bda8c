-- When does the next lease run out? One index look-up; null while nothing runs. It is asked often, so it also says where
-- the server's log stands, as history/place.sql does.
select (select extract(epoch from run.lease_until - coalesce(%(now)s::timestamptz, now()))::double precision
          from run
         where run.status = 'RUNNING' and run.lease_until > '-infinity'
         order by run.lease_until
         limit 1) as seconds,
       case when not pg_is_in_recovery() then
         ('x' || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8))::bit(32)::bigint end as timeline,
       case when not pg_is_in_recovery() then (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint end as position
