-- Where the server's log stands, for anyone to ask: its timeline, and how far it is safe on disk, in bytes. What was
-- written and not yet safe may be gone after a crash without any commit being lost. A standby has no place of its own.
select ('x' || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8))::bit(32)::bigint as timeline,
       (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint as position
 where not pg_is_in_recovery()
