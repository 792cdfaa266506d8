-- The time of kernels by device and name.
WITH recorded AS (
    SELECT session_id, device, unnest(kernels) AS kernel
    FROM facts
)
SELECT device, kernel.family AS family, kernel.kernel_name AS kernel_name, count(DISTINCT session_id) AS sessions,
       sum(kernel.calls)::BIGINT AS calls, sum(kernel.total_ns)::BIGINT AS total_ns
FROM recorded
GROUP BY ALL
