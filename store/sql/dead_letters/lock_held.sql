-- Locks a letter that is still held: whoever has it decides what becomes of it, and others look no further.
select letter_id
  from dead_letter
 where letter_id = %(letter_id)s and state = 'HELD'
   for update skip locked
