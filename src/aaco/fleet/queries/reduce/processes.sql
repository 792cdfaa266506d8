-- How far each process is from the others of its session, in a time, on the log scale; positive is
-- slower. Of two processes nothing says which one is off.
WITH processes AS (
    SELECT session_id, model, device, backend, fingerprint, several_devices, node, process, ln(value) AS log_value,
           count(*) OVER (PARTITION BY session_id) AS processes
    FROM measured
), apart AS (
    SELECT own.session_id, own.model, own.device, own.backend, own.fingerprint, own.several_devices, own.node,
           own.process, own.processes, own.log_value - median(others.log_value) AS residual
    FROM processes AS own
    JOIN processes AS others ON own.session_id = others.session_id AND own.process <> others.process
    WHERE own.processes >= 3
    GROUP BY own.session_id, own.model, own.device, own.backend, own.fingerprint, own.several_devices,
             own.node, own.process, own.processes, own.log_value
)
SELECT *, count(*) OVER peers AS peers, 1.4826 * median(abs(residual)) OVER peers AS sigma
FROM apart
WINDOW peers AS (PARTITION BY model, device, backend, fingerprint, several_devices, processes)
ORDER BY session_id, process
