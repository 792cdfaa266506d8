-- The sessions without a value of the metric that is asked for, each with the reason.
SELECT session_id, time_ns, model, device, backend, fingerprint, several_devices, node,
       coalesce(why_no_samples, 'no positive value of ' || getvariable('metric')) AS why_absent
FROM session_facts
WHERE coalesce(len(asked), 0) = 0
