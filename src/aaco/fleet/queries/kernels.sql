-- Map and reduce: the time of kernels by name over all sessions that recorded any, the most first.
WITH recorded AS (
    SELECT session_id, device, unnest(kernels) AS kernel
    FROM facts
), summed AS (
    SELECT device, kernel.family AS family, kernel.kernel_name AS kernel_name, count(DISTINCT session_id) AS sessions,
           sum(kernel.calls)::BIGINT AS calls, sum(kernel.total_ns)::BIGINT AS total_ns
    FROM recorded
    GROUP BY ALL
)
SELECT *, total_ns / sum(total_ns) OVER (PARTITION BY device) AS share
FROM summed
ORDER BY total_ns DESC, device, kernel_name, family
