-- The frame that values of a definition's type get on a topic; nothing while none was kept.
select frame from record_frame where definition_hash = %(definition_hash)s and topic = %(topic)s and type = %(type)s
