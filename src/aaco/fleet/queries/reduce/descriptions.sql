-- What a scheduler called the work of each session, and the state of its devices.
SELECT *
FROM descriptions
ORDER BY session_id
