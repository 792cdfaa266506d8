-- How far each process is from the others of its session, with the scatter of that in comparable sessions.
SELECT *, count(*) OVER peers AS peers, 1.4826 * median(abs(residual)) OVER peers AS sigma
FROM process_lags
WINDOW peers AS (PARTITION BY model, device, backend, fingerprint, several_devices, processes)
ORDER BY session_id, process
