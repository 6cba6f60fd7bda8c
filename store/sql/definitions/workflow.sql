-- The newest version of one workflow.
select tenant_id, name, version, definition_hash, created_at, created_by
  from workflow
 where tenant_id = %(tenant_id)s and name = %(name)s
 order by version desc limit 1
