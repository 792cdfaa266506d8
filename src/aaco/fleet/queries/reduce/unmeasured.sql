-- The sessions without a value of the metric that is asked for, each with the reason.
SELECT *
FROM unmeasured_sessions
ORDER BY session_id
