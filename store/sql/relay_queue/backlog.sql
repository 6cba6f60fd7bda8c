-- How much waits to be published, counted up to a limit.
select count(*)::integer as backlog from (select from relay_queue limit %(limit)s) counted
