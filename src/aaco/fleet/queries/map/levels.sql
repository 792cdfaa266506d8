-- The level of each session, the median of its processes.
SELECT session_id, time_ns, model, device, backend, fingerprint, several_devices, node, git_commit, metric, unit,
       direction, count(*) AS processes, median(value) AS level
FROM measured
GROUP BY ALL
