-- Whether there is such a dead letter, and how far it is.
select letter_id, state from dead_letter where letter_id = %(letter_id)s::bigint
