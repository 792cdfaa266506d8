-- How far each process is from the others of its session, in a time, on the log scale; positive is
-- slower. Of two processes nothing says which one is off.
WITH processes AS (
    SELECT session_id, model, device, backend, fingerprint, several_devices, node, process, ln(value) AS log_value,
           count(*) OVER session AS processes, list({'process': process, 'log_value': ln(value)}) OVER session AS listed
    FROM measured
    WINDOW session AS (PARTITION BY session_id)
), apart AS (
    SELECT * EXCLUDE (log_value, listed),
           log_value - list_median([other.log_value FOR other IN listed IF other.process <> process]) AS residual
    FROM processes
    WHERE processes >= 3
)
SELECT *, count(*) OVER peers AS peers, 1.4826 * median(abs(residual)) OVER peers AS sigma
FROM apart
WINDOW peers AS (PARTITION BY model, device, backend, fingerprint, several_devices, processes)
ORDER BY session_id, process
