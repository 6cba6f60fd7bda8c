-- A definition as pinned.
select definition_hash, name, document::text as document, descriptor_set, engine_level
  from definition
 where definition_hash = %(definition_hash)s
