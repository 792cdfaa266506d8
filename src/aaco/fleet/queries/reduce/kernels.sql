-- The time of kernels by name over all sessions that recorded any, the most first.
WITH summed AS (
    SELECT device, family, kernel_name, sum(sessions)::BIGINT AS sessions, sum(calls)::BIGINT AS calls,
           sum(total_ns)::BIGINT AS total_ns
    FROM kernel_sums
    GROUP BY ALL
)
SELECT *, total_ns / sum(total_ns) OVER (PARTITION BY device) AS share
FROM summed
ORDER BY total_ns DESC, device, kernel_name, family
