-- The record became a run after all, in this transaction: it is no dead letter.
delete from dead_letter where letter_id = %(letter_id)s
