-- A held letter is final now: from here on the relay has it. One that is not held any more stays as it is.
with refused as (
  update dead_letter
     set state = 'READY', held_until = null, code = %(code)s, reason = %(reason)s
   where letter_id = %(letter_id)s and state = 'HELD'
  returning letter_id, content_hash
)
insert into relay_queue (shard, kind, letter_id)
select mod(get_byte(content_hash, 31), (select shards from upkeep where only_row)), 'letter', letter_id
  from refused
returning letter_id
