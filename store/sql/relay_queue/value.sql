-- The value of one record, whatever its size.
select value from record where job_id = %(job_id)s and seq = %(seq)s
