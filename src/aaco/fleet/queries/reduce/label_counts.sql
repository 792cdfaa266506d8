-- In how many sessions each label is, the most first. Of those without labels: why.
SELECT name, value, why_absent, sum(sessions)::BIGINT AS sessions
FROM label_counts
GROUP BY name, value, why_absent
ORDER BY sessions DESC, name, value, why_absent
