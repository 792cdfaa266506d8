-- The metrics of which there are values.
SELECT DISTINCT metric
FROM metric_names
ORDER BY metric
