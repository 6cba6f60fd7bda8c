-- A new version, unless the newest one has this definition already; then no row is answered.
insert into workflow (tenant_id, name, version, definition_hash, created_by)
select %(tenant_id)s, %(name)s, coalesce(newest.version, 0) + 1, %(definition_hash)s, %(created_by)s
  from (select) one
  left join lateral (
    select version, definition_hash from workflow
     where tenant_id = %(tenant_id)s and name = %(name)s
     order by version desc limit 1) newest on true
 where newest.definition_hash is distinct from %(definition_hash)s
returning tenant_id, name, version, definition_hash, created_at, created_by
