-- The metrics of which there are values.
WITH measured AS (
    SELECT unnest(samples) AS sample
    FROM facts
)
SELECT DISTINCT sample.metric AS metric
FROM measured
