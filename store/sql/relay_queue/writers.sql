-- The transactions that may have taken ids for the queue's rows and not committed them yet. Each locks the table before it
-- takes the first, and until it ends.
select distinct virtualtransaction as writer
  from pg_locks
 where locktype = 'relation' and relation = 'relay_queue'::regclass and mode = 'RowExclusiveLock'
   and database = (select oid from pg_database where datname = current_database())
