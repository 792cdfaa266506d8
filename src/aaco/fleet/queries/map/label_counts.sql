-- In how many sessions each label is. Of those without labels: why.
WITH counted AS (
    SELECT labels, why_no_labels, coalesce(len(labels), 0) AS names
    FROM session_facts
), named AS (
    SELECT unnest(labels) AS label
    FROM counted
    WHERE names > 0
)
SELECT label.name AS name, label.value AS value, NULL AS why_absent, count(*) AS sessions
FROM named
GROUP BY ALL
UNION ALL BY NAME
SELECT coalesce(why_no_labels, getvariable('before')) AS why_absent, count(*) AS sessions
FROM counted
WHERE names = 0
GROUP BY ALL
