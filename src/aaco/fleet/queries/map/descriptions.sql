-- What a scheduler called the work of each session, and the state of its devices.
SELECT session_id, labels, health,
       CASE WHEN coalesce(len(labels), 0) = 0 THEN coalesce(why_no_labels, getvariable('before')) END AS why_no_labels,
       CASE WHEN coalesce(len(health), 0) = 0 THEN coalesce(why_no_health, getvariable('before')) END AS why_no_health
FROM session_facts
