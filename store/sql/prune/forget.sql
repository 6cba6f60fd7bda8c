-- Forgets the oldest pruned runs, and their idempotency keys, and says in the same transaction up to when that is: a record
-- from then on back whose id is unknown may be one of theirs. A run that is still there is remembered by itself.
with due as materialized (
  select job_id
    from pruned_run
   where greatest(settled_at, record_time)
         < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(remember_seconds)s::float8)
     and (select 1 from run where run.job_id = pruned_run.job_id limit 1) is null
   order by greatest(settled_at, record_time)
   limit %(limit)s
     for update skip locked
), forgotten as (
  delete from pruned_run where job_id = any (array(select job_id from due))
  returning greatest(settled_at, record_time) as last_at
), no_key as (
  delete from idempotency_key where job_id = any (array(select job_id from due))
), told as (
  update upkeep set forgotten_before = greatest(forgotten_before, (select max(last_at) from forgotten))
   where only_row and (select max(last_at) from forgotten) is not null
)
select count(*)::integer as forgotten from forgotten
