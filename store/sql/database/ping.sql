-- Does the server answer?
select 1 as answer
