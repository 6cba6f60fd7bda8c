-- How many letters are held, and how many wait for the relay, each counted up to a limit.
select (select count(*) from (select from dead_letter where state = 'HELD' limit %(limit)s) held)::integer as held,
       (select count(*) from (select from dead_letter where state = 'READY' limit %(limit)s) ready)::integer as ready
