WITH counts AS (
    SELECT auction, time_bucket(INTERVAL 2 SECONDS, date_time) + INTERVAL 2 SECONDS * period AS window_end, count(*) AS num
    FROM bids, range(1, 6) AS periods(period)
    GROUP BY ALL
)
SELECT window_end, auction, num
FROM counts
QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY num DESC, auction DESC) = 1
