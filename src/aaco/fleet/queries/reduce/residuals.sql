-- How far each session is from its base, the median of the sessions that are comparable with it, on the log
-- scale; positive is worse. sigma: their median absolute deviation, scaled to the standard deviation of a normal.
WITH based AS (
    SELECT *, count(*) OVER peers AS sessions, count(DISTINCT node) OVER peers AS nodes,
           median(ln(level)) OVER peers AS log_base
    FROM levels
    WINDOW peers AS (PARTITION BY model, device, backend, fingerprint, several_devices, metric)
), shifted AS (
    SELECT *, CASE direction WHEN 'lower_is_better' THEN ln(level) - log_base ELSE log_base - ln(level) END AS residual
    FROM based
)
SELECT * EXCLUDE (log_base), exp(log_base) AS base, 1.4826 * median(abs(residual)) OVER peers AS sigma
FROM shifted
WINDOW peers AS (PARTITION BY model, device, backend, fingerprint, several_devices, metric)
ORDER BY model, device, backend, fingerprint, several_devices, metric, time_ns, session_id
