-- The time of kernels by device and name: the sums of compacted files, and what is summed here of sessions in others. A
-- number for each session: numbers count in half the time of ids.
WITH numbered AS (
    SELECT row_number() OVER () AS session, device, kernels
    FROM unsummed
), recorded AS (
    SELECT session, device, unnest(kernels) AS kernel
    FROM numbered
)
SELECT device, kernel.family AS family, kernel.kernel_name AS kernel_name, count(DISTINCT session) AS sessions,
       sum(kernel.calls)::BIGINT AS calls, sum(kernel.total_ns)::BIGINT AS total_ns
FROM recorded
GROUP BY ALL
UNION ALL BY NAME
SELECT device, family, kernel_name, sessions, calls, total_ns
FROM sums
