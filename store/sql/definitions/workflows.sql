-- The newest version of each workflow, by name. Steps from name to name through the primary key, so that old versions
-- cost nothing.
with recursive names as (
  select (select min(name) from workflow where tenant_id = %(tenant_id)s and name > coalesce(%(after)s::text, '')) as name
  union all
  select (select min(name) from workflow where tenant_id = %(tenant_id)s and name > names.name)
    from names
   where names.name is not null
)
select newest.*
  from names
  cross join lateral (
    select tenant_id, name, version, definition_hash, created_at, created_by
      from workflow
     where tenant_id = %(tenant_id)s and workflow.name = names.name
     order by version desc limit 1) newest
 limit %(limit)s
