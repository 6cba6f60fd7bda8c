-- Waits until no claim of this owner is under way, one whose answer was lost included, and holds back the next one.
select pg_advisory_xact_lock(hashtextextended(%(owner)s, 0))
